"""A program at its gates takes one step at a word, says what came back, and ends with its player."""

from __future__ import annotations

import contextlib
import threading

import pytest

from labs.equipment.waiting import eventually
from labs.schedules.replay.driver import Driver, Silent, Step
from labs.schedules.replay.gates import Abandoned, Ended, serve

PATIENCE = 10.0  # seconds


class InThread(Driver):
    def __init__(self, program):
        super().__init__("driver 1")
        self.thread = threading.Thread(target=serve, args=(program, {}, self.theirs))
        self.thread.start()


@pytest.fixture
def started():
    with contextlib.ExitStack() as stack:

        def start(program):
            driver = InThread(program)
            stack.callback(driver.thread.join, PATIENCE)
            stack.callback(driver.close)
            return driver

        yield start


def test_step_is_taken_at_the_word_and_not_when_it_is_only_asked_for(started):
    taken = []

    def reads_twice(settings, gates):
        for record in range(2):
            gates.gate("read", row=record)
            taken.append(record)
            gates.answer = f"record {record}"

    driver = started(reads_twice)
    assert driver.peek() == driver.peek() == Step("read", None, 0)
    assert not taken
    assert (driver.begin(), driver.taking) == (Step("read", None, 0), Step("read", None, 0))
    assert (driver.answer(), driver.taking, taken) == ("record 0", None, [0])
    assert (driver.begin(), driver.answer()) == (Step("read", None, 1), "record 1")
    assert driver.alive
    assert (driver.begin(), driver.alive) == (Step("end"), False)


def test_program_that_ends_says_so_with_its_last_answer(started):
    def is_refused(settings, gates):
        gates.gate("commit", 0)
        raise Ended("fenced")

    driver = started(is_refused)
    assert (driver.begin(), driver.answer(), driver.alive) == (Step("commit", 0), "fenced", False)


def test_program_that_asks_for_an_epoch_ahead_goes_on_to_the_step_that_needs_it(started):
    granted = threading.Event()

    def asks_ahead(settings, gates):
        gates.gate("fence", 1, ahead=True)
        gates.ahead = threading.Thread(target=granted.wait, args=(PATIENCE,))
        gates.ahead.start()
        gates.gate("note", 0)
        gates.answer = ""
        gates.gate("row", 1, 2)
        gates.answer = "ok"

    driver = started(asks_ahead)
    assert (driver.begin(), driver.taking) == (Step("fence", 1), None)
    assert driver.peek() == Step("note", 0)
    assert (driver.begin(), driver.answer()) == (Step("note", 0), "")
    assert driver.peek() == Step("wait")
    granted.set()
    assert eventually(lambda: driver.peek() == Step("row", 1, 2), PATIENCE)
    assert (driver.begin(), driver.answer()) == (Step("row", 1, 2), "ok")


def test_program_whose_player_is_gone_ends_and_takes_no_step(started):
    taken = []

    def plans(settings, gates):
        gates.gate("plan", 0)
        taken.append("plan")

    driver = started(plans)
    assert driver.peek() == Step("plan", 0)
    driver.close()
    driver.thread.join(PATIENCE)
    assert not driver.thread.is_alive()
    assert not taken


def test_player_whose_program_is_gone_is_told(started):
    def stops(settings, gates):
        raise Abandoned

    driver = started(stops)
    driver.thread.join(PATIENCE)
    with pytest.raises(Silent, match=r"driver 1 has ended by itself\."):
        driver.peek()
