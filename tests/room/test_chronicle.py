"""A strike's consequence is asked for as long as it may still show, and no longer."""

from types import SimpleNamespace

import pytest

from labs.room.chronicle import MORE, Chronicle, of_an_outage


@pytest.fixture
def chronicle(monkeypatch):
    """A chronicle in which a second part that does not come at once comes too late."""
    monkeypatch.setattr("labs.room.chronicle.SECOND_PART", -1.0)
    return Chronicle(lambda: 0.0)


def strike(chronicle: Chronicle, *words: str) -> None:
    """Strike; each look finds the next words."""
    found = iter(words)
    chronicle.note("freeze-broker", "broker 0 was frozen", lambda: next(found))


def look(chronicle: Chronicle) -> str:
    chronicle.look()
    return chronicle.all[0].consequence


def test_the_newest_strike_is_asked_about_however_long_its_second_part_takes(chronicle):
    strike(chronicle, "repeated", "repeated, 66 results doubled")
    assert [look(chronicle), look(chronicle)] == ["repeated", "repeated, 66 results doubled"]


def test_after_the_next_strike_a_second_part_that_is_late_is_the_other_ones(chronicle):
    strike(chronicle, "repeated", "repeated", "repeated, 66 results doubled")
    look(chronicle)
    chronicle.note("heal-network", "the network is whole again")
    assert [look(chronicle), look(chronicle)] == ["repeated"] * 2


def test_what_is_to_go_on_is_asked_about_beside_other_strikes_too(chronicle):
    strike(chronicle, "driver 1 timed out" + MORE, "driver 1 timed out" + MORE, "noted again")
    look(chronicle)
    chronicle.note("wake-broker", "broker 0 was woken")
    assert [look(chronicle), look(chronicle)] == ["driver 1 timed out" + MORE, "noted again"]


def test_a_strike_whose_act_has_ended_is_not_awaited_for_ever(chronicle):
    strike(chronicle, "", "", "driver 1 timed out" + MORE)
    strike(chronicle, "", "")
    look(chronicle)
    chronicle.end_act()
    assert [each.consequence for each in chronicle.all] == ["nothing had shown when the act ended"] * 2
    assert not any(each.consequence.endswith(MORE) for each in chronicle.all)


def test_a_cluster_that_goes_on_without_a_broker_is_not_said_to_stand_still():
    checkpoint, drivers = SimpleNamespace(noted=4, look=lambda: None), SimpleNamespace(living=[])
    told = of_an_outage(SimpleNamespace(checkpoint=checkpoint), drivers, lambda: False)  # type: ignore[arg-type]
    checkpoint.noted = 5  # this batch was on its way
    assert told() == ""
    checkpoint.noted = 6
    assert told() == "batches are in the checkpoint again after 0 s"


def test_an_outage_ends_with_the_first_batch_after_the_repair():
    checkpoint, drivers = SimpleNamespace(noted=4, look=lambda: None), SimpleNamespace(living=[])
    over: list[bool] = []
    told = of_an_outage(SimpleNamespace(checkpoint=checkpoint), drivers, lambda: bool(over))  # type: ignore[arg-type]
    checkpoint.noted = 5
    assert told() == ""
    over.append(True)
    assert told() == ""
    checkpoint.noted = 6
    assert "again after 0 s" in told()
