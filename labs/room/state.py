"""What the room shows, as plain values for JSON: one key for each part of the picture, all of them always there.

time       float, seconds since the room was opened
stage      {"name", "names": the five of the staircase, "act"}; a change of stage begins a new act, with counts from 0
traffic    {"on", "rate": records/s wanted, "sent", "per_second"}
counted    {"records": in batches that are noted, "per_second", "behind"}
batches    the last 12: {"number", "state": planned|running|noted, "driver", "runs": how often it was begun}
drivers    the last 4: {"number", "state": one of drivers.STATES, "batch", "epoch": the newest seen in the log}
spare      whether a hot spare is wanted: it is among the drivers once it is there, warm or starting
brokers    {"number", "state": running|frozen|killed|starting}
executors  {"wanted", "running"}
network    {"cut", "hold": ""|waiting|held, "held_epoch"}
log        {"end", "stable": the last stable offset, "entries": the last 48 of the sink topic's partition}
           an entry: {"offset", "kind": row|commit|abort|other, "state": plain|open|committed|aborted, "producer",
           "epoch", "batch", "window", "ip", "count", "copy": readable at a lower offset already}
marker     None or {"batch", "epoch"}: the last committed marker
readers    {"committed", "uncommitted"}: the results that a reader of each isolation level sees
verdict    {"word": valid|invalid|unknown, "expected", "delivered", "awaited", "lost", "duplicated", "conflicting",
           "torn", "why"}: running, counted as labs.evidence.auditor counts; awaited: expected, and not due yet
chronicle  the last 40: {"number", "time", "strike", "words", "consequence": "" until it has shown}
possible   the orders that can be carried out now
message    "", or in one line why the last order was not carried out, or what the room waits for
report     None, or after `finish` the auditor's final word: {"verdict", "expected", "delivered", "lost",
           "duplicated", "conflicting", "torn", "summary"}
"""

from __future__ import annotations

import copy
from typing import Any

from labs.runs.staircase import EXACTLY_ONCE, STAGES

State = dict[str, Any]

STAGE_NAMES = tuple(stage.name for stage in STAGES)
ENTRIES, BATCHES, DRIVERS, STRIKES = 48, 12, 4, 40  # so many of each are shown

NO_VERDICT = {
    "word": "unknown",
    "expected": 0,
    "delivered": 0,
    "awaited": 0,
    "lost": 0,
    "duplicated": 0,
    "conflicting": 0,
    "torn": 0,
    "why": "nothing was delivered yet",
}


def empty_state(stage: str = EXACTLY_ONCE.name) -> State:
    """Return the state of a room in which nothing has happened."""
    return {
        "time": 0.0,
        "stage": {"name": stage, "names": list(STAGE_NAMES), "act": 1},
        "traffic": {"on": False, "rate": 0, "sent": 0, "per_second": 0.0},
        "counted": {"records": 0, "per_second": 0.0, "behind": 0},
        "batches": [],
        "drivers": [],
        "spare": False,
        "brokers": [],
        "executors": {"wanted": 0, "running": 0},
        "network": {"cut": False, "hold": "", "held_epoch": None},
        "log": {"end": 0, "stable": 0, "entries": []},
        "marker": None,
        "readers": {"committed": 0, "uncommitted": 0},
        "verdict": dict(NO_VERDICT),
        "chronicle": [],
        "possible": [],
        "message": "",
        "report": None,
    }


KEYS = tuple(empty_state())


def changes(old: State, new: State) -> State:
    """Return what is different in the new one: whole values by their keys."""
    return {key: value for key, value in new.items() if old.get(key) != value}


def copied(state: State) -> State:
    """Return a copy that nobody else changes."""
    return copy.deepcopy(state)
