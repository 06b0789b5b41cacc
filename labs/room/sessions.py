"""Play seeded sessions and compare what the room showed with what the auditor says: the numbers must be equal.

python -m labs.room.sessions --seeds 10
"""

from __future__ import annotations

import argparse
import sys
from typing import Any

from labs.room.room import Room
from labs.room.script import play, random_script
from labs.room.state import STAGE_NAMES, State
from labs.runs.staircase import EXACTLY_ONCE

NUMBERS = ("expected", "delivered", "lost", "duplicated", "conflicting", "torn")


def differences(state: State) -> list[str]:
    """Return what the room's running verdict and its auditor's report disagree about, one line each."""
    shown, judged = state["verdict"], state["report"]
    found = [f"{name}: shown {shown[name]}, judged {judged[name]}" for name in NUMBERS if shown[name] != judged[name]]
    if shown["word"] != judged["verdict"]:
        found.append(f"word: shown {shown['word']}, judged {judged['verdict']}")
    return found


def stage_of(seed: int) -> str:
    """Return the stage of a seeded session: the last of the staircase every other time, else one of the others."""
    return EXACTLY_ONCE.name if seed % 2 else STAGE_NAMES[seed // 2 % 4]


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--first-seed", type=int, default=1)
    parser.add_argument("--strikes", type=int, default=5)
    asked = parser.parse_args(arguments)
    failed = 0
    with Room(spare=True) as room:
        for seed in range(asked.first_seed, asked.first_seed + asked.seeds):
            trouble = _session(room, seed, asked.strikes)
            failed += bool(trouble)
    print(f"{asked.seeds - failed} of {asked.seeds} sessions: what the room showed is what the auditor says")
    return 1 if failed else 0


def _session(room: Room, seed: int, strikes: int) -> list[str]:
    stage = stage_of(seed)
    known = max((each["number"] for each in room.state["chronicle"]), default=0)
    began = room.state["time"]
    play(room, random_script(seed, strikes, stage))
    state = room.state
    trouble = differences(state)
    if stage == EXACTLY_ONCE.name and state["report"]["verdict"] != "valid":
        trouble.append("with the marker it must be valid")
    numbers: dict[str, Any] = {name: state["report"][name] for name in NUMBERS}
    print(f"seed {seed}, {stage}, {state['time'] - began:.0f} s: {state['report']['verdict']} {numbers}")
    for each in state["chronicle"]:
        if each["number"] > known:
            print(f"    {each['time']:7.1f}  {each['strike']:<16} {each['words']}: {each['consequence']}")
    print("    " + ("; ".join(trouble) or "equal"), flush=True)
    return trouble


if __name__ == "__main__":
    sys.exit(main())
