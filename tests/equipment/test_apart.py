"""A lesson's function in a process of its own: what it returns comes back, and a kill is a kill."""

from __future__ import annotations

import os

import psutil
import pytest

from labs.equipment.apart import Apart, ApartFailed

pytestmark = pytest.mark.long


def test_it_returns_what_the_function_returned_and_the_process_stays_until_it_is_killed():
    offset = 40
    job = Apart(lambda number: (number + offset, os.getpid()), 2)
    answer, pid = job.result
    assert answer == 42
    assert pid != os.getpid()
    assert psutil.pid_exists(pid)
    assert job.kill() == "SIGKILL"
    assert not psutil.pid_exists(pid)


def test_what_it_raises_is_told():
    with pytest.raises(ApartFailed, match="ZeroDivisionError"):
        Apart(lambda: 1 / 0)


def test_a_process_that_ends_before_it_returns_is_told():
    with pytest.raises(ApartFailed, match="ended before it returned"):
        Apart(lambda: os._exit(3))
