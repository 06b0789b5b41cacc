"""A script for the room: orders, and conditions to wait for, as data, so that a program can play a session.

    audit = play(room, SHORT)

A step is an order with its arguments, or the name of a condition with a number. Guarantee: the conditions of a script
are met in the same order each time. Limitations: the times at which they are met differ from run to run.

    python -m labs.room.script --seeds 10

plays seeded sessions, and compares the running verdict with the final audit: the numbers must be equal.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from random import Random
from typing import Any

from labs.evidence.auditor.audit import Audit
from labs.room.room import Room, RoomError
from labs.room.state import STAGE_NAMES, State
from labs.runs.staircase import CHECKPOINT, EXACTLY_ONCE, TRANSACTIONS

WITH_COMMITS = (TRANSACTIONS.name, EXACTLY_ONCE.name)


@dataclass(frozen=True)
class Do:
    """Give an order."""

    order: str
    arguments: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Until:
    """Wait until the condition's value is at least `number`; with `more`, at least `number` above the present value."""

    condition: str
    number: float = 1
    more: bool = False
    timeout: float = 240.0  # on a busy machine a first batch takes two minutes


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

# With the marker, a kill and a late commit do no harm.
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
# With a checkpoint only, the same kill duplicates results.
WITHOUT_MARKER: Script = (
    Do("choose-stage", {"stage": CHECKPOINT.name}),
    Do("start-traffic"),
    Until("delivered", 6),
    Do("kill-driver", {"at": "rows"}),
    Until("duplicated", 1),
    Do("finish"),
)


def play(room: Room, script: Iterable[Step]) -> Audit | None:
    """Carry out a script; return the audit if the script has a `finish`. Raises RoomError, TimeoutError."""
    audit = None
    for step in script:
        if isinstance(step, Until):
            _wait(room, step)
        elif said := room.do(step.order, **step.arguments).result():
            raise RoomError(said)
        elif step.order == "finish":
            audit = room.audit
    return audit


def _wait(room: Room, step: Until) -> None:
    value = CONDITIONS[step.condition]
    least = step.number + (value(room.state) if step.more else 0)
    try:
        room.wait(lambda state: value(state) >= least, step.timeout)
    except TimeoutError as error:
        raise TimeoutError(f"{step.condition} did not become {least:g}: {error}") from None


def random_script(seed: int, strikes: int = 5, stage: str = EXACTLY_ONCE.name) -> Script:
    """Return an act with `strikes` seeded strikes, each followed by its repair; it ends with `finish`."""
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


# The kinds of strikes; the first needs a stage with transactions.
KINDS: tuple[Callable[[Random, bool], list[Step]], ...] = (
    _late_commit,
    _kill,
    _broker,
    _cut,
    _freeze,
    _second_driver,
)


NUMBERS = ("expected", "delivered", "lost", "duplicated", "conflicting", "torn")


def differences(state: State) -> list[str]:
    """Return the differences between the running verdict and the auditor's report, one line each."""
    shown, judged = state["verdict"], state["report"]
    found = [f"{name}: shown {shown[name]}, judged {judged[name]}" for name in NUMBERS if shown[name] != judged[name]]
    if shown["word"] != judged["verdict"]:
        found.append(f"word: shown {shown['word']}, judged {judged['verdict']}")
    return found


def stage_of(seed: int) -> str:
    """Return the stage of a seeded session: the last of the staircase for odd seeds, else one of the others."""
    return EXACTLY_ONCE.name if seed % 2 else STAGE_NAMES[seed // 2 % 4]


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--first-seed", type=int, default=1)
    parser.add_argument("--strikes", type=int, default=5)
    asked = parser.parse_args(arguments)
    failed = 0
    with Room() as room:
        for seed in range(asked.first_seed, asked.first_seed + asked.seeds):
            trouble = _session(room, seed, asked.strikes)
            failed += bool(trouble)
    print(f"{asked.seeds - failed} of {asked.seeds} sessions: the running verdict is equal to the audit")
    return 1 if failed else 0


def _session(room: Room, seed: int, strikes: int) -> list[str]:
    stage = stage_of(seed)
    known = max((each["number"] for each in room.state["chronicle"]), default=0)
    began = room.state["time"]
    play(room, random_script(seed, strikes, stage))
    state = room.state
    trouble = differences(state)
    if stage == EXACTLY_ONCE.name and state["report"]["verdict"] != "valid":
        trouble.append("with the marker, the verdict must be valid")
    numbers: dict[str, Any] = {name: state["report"][name] for name in NUMBERS}
    print(f"seed {seed}, {stage}, {state['time'] - began:.0f} s: {state['report']['verdict']} {numbers}")
    for each in state["chronicle"]:
        if each["number"] > known:
            print(f"    {each['time']:7.1f}  {each['strike']:<16} {each['words']}: {each['consequence']}")
    print("    " + ("; ".join(trouble) or "equal"), flush=True)
    return trouble


if __name__ == "__main__":
    sys.exit(main())
