from collections.abc import Iterator

import pytest

from labs.equipment.waiting import eventually


def test_returns_the_first_true_value():
    values: Iterator[object] = iter([None, 0, [], "there", "later"])
    assert eventually(lambda: next(values), interval=0) == "there"


def test_asks_at_least_once_even_with_no_time_left():
    assert eventually(lambda: "now", timeout=0) == "now"


def test_an_exception_means_not_yet():
    calls = []

    def third_time_lucky():
        calls.append(1)
        if len(calls) < 3:
            raise OSError("not yet")
        return True

    assert eventually(third_time_lucky, interval=0)
    assert len(calls) == 3


def test_timeout_names_the_condition_and_the_last_value():
    def the_moon_is_blue():
        return 0

    with pytest.raises(TimeoutError, match=r"the_moon_is_blue was not met within 0\.02 s; last seen: 0"):
        eventually(the_moon_is_blue, timeout=0.02, interval=0.01)


def test_timeout_names_the_last_exception():
    def nobody_there():
        raise OSError("nobody there")

    with pytest.raises(TimeoutError, match=r"last seen: OSError\('nobody there'\)"):
        eventually(nobody_there, timeout=0)


def test_ctrl_c_is_not_swallowed():
    def interrupted():
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        eventually(interrupted, timeout=60)
