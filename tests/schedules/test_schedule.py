"""A schedule as data: in and out of JSON, in words, and what it may not say."""

from __future__ import annotations

import json

import pytest

from labs.schedules.schedule import HELD, Event, Schedule, ScheduleError, compact

COMMIT = Event("driver 1", "commit", 0, epoch=3)
ARRIVES = Event("network", "deliver", 0, epoch=3, answer="ok", request="commit", whose="driver 1", sees=(0, 1))


def test_json_in_and_out():
    schedule = Schedule("one epoch", (Event("driver 1", "plan", 0, 1), COMMIT._replace(answer=HELD), ARRIVES), "torn")
    assert Schedule.from_json(schedule.to_json()) == schedule


def test_in_words():
    events = (Event("driver 1", "row", 1, 2, 3, "fenced"), Event("supervisor", "start", 1, whose="driver 2"), ARRIVES)
    assert str(Schedule("one epoch", events, "torn")).splitlines() == [
        "one epoch: torn",
        "  1. driver 1 sends record 2 of batch 1 (epoch 3): fenced",
        "  2. supervisor starts driver 2 from the checkpoint, at batch 1",
        "  3. network delivers driver 1's commit of batch 0 (epoch 3): ok",
    ]


def test_request_that_arrives_at_once_is_one_event():
    assert compact([COMMIT, ARRIVES]) == (COMMIT._replace(answer="ok", sees=(0, 1)),)


def test_request_that_arrives_later_is_held():
    between = Event("broker", "time out")
    assert compact([COMMIT, between, ARRIVES]) == (COMMIT._replace(answer=HELD), between, ARRIVES)


def test_driver_that_never_acts_again_has_crashed_and_one_that_does_wakes_up():
    first, started, second = Event("driver 1", "plan", 0, 1), Event("supervisor", "start", 0, whose="driver 2"), COMMIT
    crash, wake = Event("driver 1", "crash"), Event("driver 1", "wake")
    assert compact([first, started]) == (first, crash, started)
    assert compact([first, started, second]) == (first, started, wake, second._replace(answer=HELD))


@pytest.mark.parametrize(
    ("event", "why"),
    [
        ({"actor": "driver 1", "action": "explode"}, "step 1: driver 1 cannot 'explode'; it can: fence, read marker"),
        ({"actor": "gremlin", "action": "commit"}, "step 1: there is no actor 'gremlin'"),
        ({"actor": "driver 1"}, "step 1: an event has an actor, an action"),
        (
            {"actor": "driver 1", "action": "commit", "batch": "last"},
            "step 1: batch, row, epoch and sequence are whole",
        ),
        ({"actor": "driver 1", "action": "commit", "sees": 3}, "step 1: .* sees is a list of them"),
        ({"actor": "driver 1", "action": "commit", "sees": ["0"]}, "step 1: .* sees is a list of them"),
        ({"actor": "driver 1", "action": "commit", "colour": 1}, "step 1: an event has an actor, an action"),
        ({"actor": "network", "action": "deliver"}, "step 1: the network delivers a program's request"),
        ({"actor": "driver 2", "action": "commit", "batch": 0}, "step 1: driver 2 was not started"),
        (
            {"actor": "network", "action": "deliver", "request": "commit", "whose": "driver 1", "batch": 7},
            "step 1: driver 1 has not sent its commit of batch 7",
        ),
        (7, "step 1: an event has an actor, an action"),
    ],
)
def test_what_is_impossible_is_one_clear_line(event, why):
    with pytest.raises(ScheduleError, match=why) as refused:
        Schedule.from_json(json.dumps({"stage": "", "events": [event]}))
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("text", ["", "[]", "{}", "7", '{"events": []}', '{"stage": "", "events": 5}'])
def test_what_is_no_schedule_says_how_one_looks(text):
    with pytest.raises(ScheduleError, match="a schedule is JSON"):
        Schedule.from_json(text)
