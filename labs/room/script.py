"""A script for the room: orders and conditions to wait for, as data, so that a session can be played without hands.

    audit = play(room, SHORT)

A step is an order with its arguments, or a condition by name with a number. Guarantee: what a script asserts by its
conditions is the same each time; when each happens is not.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from random import Random
from typing import Any

from labs.evidence.auditor.audit import Audit
from labs.room.room import Room, RoomError
from labs.room.state import State
from labs.runs.staircase import CHECKPOINT, EXACTLY_ONCE, TRANSACTIONS

WITH_COMMITS = (TRANSACTIONS.name, EXACTLY_ONCE.name)


@dataclass(frozen=True)
class Do:
    """Give an order."""

    order: str
    arguments: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Until:
    """Wait until the condition is met; `more`, by so much more than there was when the step began."""

    condition: str
    number: float = 1
    more: bool = False
    timeout: float = 90.0


Step = Do | Until
Script = tuple[Step, ...]

CONDITIONS: dict[str, Callable[[State], float]] = {
    "seconds": lambda state: state["time"],
    "sent": lambda state: state["traffic"]["sent"],
    "delivered": lambda state: state["verdict"]["delivered"],
    "duplicated": lambda state: state["verdict"]["duplicated"],
    "noted": lambda state: max((each["number"] for each in state["batches"] if each["state"] == "noted"), default=-1),
    "working": lambda state: sum(each["state"] == "working" for each in state["drivers"]),
    "warm": lambda state: sum(each["state"] == "warm" for each in state["drivers"]),
    "held": lambda state: state["network"]["hold"] == "held",
    "running brokers": lambda state: sum(each["state"] == "running" for each in state["brokers"]),
    "executors": lambda state: state["executors"]["running"],
    "told": lambda state: bool(state["chronicle"] and state["chronicle"][-1]["consequence"]),
    "refused": lambda state: sum(each["state"] == "refused" for each in state["drivers"]),
}

# A kill and a late commit do no harm with the marker.
SHORT: Script = (
    Do("start-traffic"),
    Until("delivered", 6),
    Do("kill-driver", {"at": "rows"}),
    Until("delivered", 6, more=True),
    Do("hold-commit"),
    Until("held"),
    Until("noted", 1, more=True),
    Do("deliver-commit"),
    Until("delivered", 1, more=True),
    Do("finish"),
)
# The same kill does harm where there is only a checkpoint.
WITHOUT_MARKER: Script = (
    Do("choose-stage", {"stage": CHECKPOINT.name}),
    Do("start-traffic"),
    Until("delivered", 6),
    Do("kill-driver", {"at": "rows"}),
    Until("duplicated", 1),
    Do("finish"),
)
TWO_STAGES: Script = (Do("choose-stage", {"stage": EXACTLY_ONCE.name}), *SHORT, *WITHOUT_MARKER)


def play(room: Room, script: Iterable[Step]) -> Audit | None:
    """Carry out a script; return the auditor's last word, if it asked for one. Raises RoomError, TimeoutError."""
    for step in script:
        if isinstance(step, Until):
            _wait(room, step)
        elif said := room.do(step.order, **step.arguments).result():
            raise RoomError(said)
    return room.audit


def _wait(room: Room, step: Until) -> None:
    value = CONDITIONS[step.condition]
    least = step.number + (value(room.state) if step.more else 0)
    try:
        room.wait(lambda state: value(state) >= least, step.timeout)
    except TimeoutError as error:
        raise TimeoutError(f"{step.condition} did not become {least:g}: {error}") from None


def random_script(seed: int, strikes: int = 5, stage: str = EXACTLY_ONCE.name) -> Script:
    """Return an act of so many strikes, each of them mended, drawn from a seed; it ends in the auditor's word."""
    random = Random(f"{seed} {stage}")
    commits = stage in WITH_COMMITS
    script: list[Step] = [Do("choose-stage", {"stage": stage}), Do("start-traffic"), Until("delivered", 1)]
    for _ in range(strikes):
        script += random.choice(KINDS if commits else KINDS[1:])(random, commits)
        script += [Until("running brokers"), Until("noted", random.randint(1, 3), more=True)]
    return (*script, Do("finish"))


def _late_commit(random: Random, commits: bool) -> list[Step]:
    assert commits
    late = Until("seconds", random.randint(0, 3), more=True)
    return [Do("hold-commit"), Until("held"), late, Do("deliver-commit")]


def _kill(random: Random, commits: bool) -> list[Step]:
    moments: list[dict[str, Any]] = [{}, {"at": "rows"}, {"at": "commit"} if commits else {"at": "rows"}]
    return [Do("kill-driver", random.choice(moments))]


def _broker(random: Random, commits: bool) -> list[Step]:
    strike, mend = random.choice((("kill-broker", "start-broker"), ("freeze-broker", "wake-broker")))
    return [Do(strike), Until("seconds", random.randint(1, 4), more=True), Do(mend)]


def _cut(random: Random, commits: bool) -> list[Step]:
    return [Do("cut-network"), Until("seconds", random.randint(1, 4), more=True), Do("heal-network")]


def _freeze(random: Random, commits: bool) -> list[Step]:
    if random.random() < 0.5:
        return [Do("freeze-driver"), Until("seconds", random.randint(1, 12), more=True), Do("wake-driver")]
    return [Do("freeze-driver"), Do("start-driver"), Until("working"), Do("wake-driver")]


def _second_driver(random: Random, commits: bool) -> list[Step]:
    return [Do("start-driver"), Until("told")]


# What is drawn from; the first needs commits.
KINDS: tuple[Callable[[Random, bool], list[Step]], ...] = (
    _late_commit,
    _kill,
    _broker,
    _cut,
    _freeze,
    _second_driver,
)


def as_json(script: Iterable[Step]) -> str:
    """Write a script as JSON."""
    return json.dumps([{type(step).__name__.lower(): vars(step)} for step in script])
