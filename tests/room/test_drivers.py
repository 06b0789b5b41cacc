"""What the room says of its drivers and of its log, worked out without a process."""

from __future__ import annotations

import json
import time

import pytest

from labs.room.drivers import Driver, Drivers
from labs.room.sink_log import Row, SinkLog
from labs.room.state import ENTRIES_SHOWN


@pytest.mark.parametrize(
    ("states", "said"),
    [
        ([], "no driver runs"),
        (["starting"], "driver 1 is starting, about 25 s"),
        (["frozen"], "driver 1 is frozen"),
        (["killed", "starting"], "driver 2 is starting, about 25 s"),
        (["frozen", "starting"], "driver 2 is starting, about 25 s"),
        (["frozen", "working"], ""),
    ],
)
def test_the_room_says_which_driver_its_results_wait_for(states, said):
    drivers = Drivers(dict, lambda *told: None, {})
    for number, state in enumerate(states, 1):
        drivers.all.append(Driver(number, None))  # type: ignore[arg-type]
        drivers.all[-1].state = state
    assert drivers.waiting() == said


class KilledJob:
    """A job that has written a line which nobody has read yet."""

    def __init__(self, file):
        self.log_file = file
        file.write_text(json.dumps({"event": "begins", "batch": 5}) + "\n")

    def kill(self):
        pass

    def close(self):
        pass


def test_what_a_killed_driver_has_said_since_the_last_look_is_heard(tmp_path):
    told: list[tuple[int, int]] = []
    drivers = Drivers(dict, lambda driver, event: told.append((driver.number, event["batch"])), {})
    drivers.all.append(Driver(1, KilledJob(tmp_path / "job.log")))  # type: ignore[arg-type]
    drivers.kill(drivers.all[0])
    assert told == [(1, 5)]
    assert (drivers.all[0].state, drivers.all[0].batch) == ("killed", 5)


def test_a_start_that_takes_longer_than_the_last_one_is_called_longer():
    drivers = Drivers(dict, lambda *told: None, {})
    drivers.all.append(Driver(1, None, was_warm=True))  # type: ignore[arg-type]
    assert drivers.waiting() == "driver 1 is starting, about 5 s"
    drivers.all[0].began = time.monotonic() - 60
    assert drivers.waiting() == "driver 1 is starting, longer than the usual 3 s"


def test_a_burst_of_records_is_shown_once_in_full_and_again_when_it_is_committed():
    log = SinkLog(None, None)  # type: ignore[arg-type]
    rows = [Row(offset, "row", "open", 1, 0) for offset in range(200)]
    log.entries.extend(rows)
    log.undecided.extend(rows)
    log.end = 200
    assert [len(log.shown()["entries"]) for _ in range(2)] == [200, ENTRIES_SHOWN]
    log._end_transaction(1, "committed")
    shown = log.shown()["entries"]
    assert (len(shown), {each["state"] for each in shown}) == (200, {"committed"})
