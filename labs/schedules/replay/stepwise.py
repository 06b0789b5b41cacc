"""How a program of a replay is driven: a process of its own that takes one step at a word.

It reads "next" from a pipe, says which step it takes (`{"action": "row", "batch": 0, "row": 1}`), takes it, and says
what came back (`{"answer": "ok"}`). So it can be held between any two steps, stopped, woken and killed. At "peek" it
only says which step comes next.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from typing import IO, Any, Protocol

from labs.schedules.replay.driver import DONE


class Ended(Exception):
    """The program goes no further; the message says why."""


class Program(Protocol):
    """What takes the steps."""

    @property
    def finished(self) -> bool: ...

    def upcoming(self) -> dict[str, Any]:
        """Say which step comes next: its action, and its batch and row if it has them."""
        ...

    def take(self, step: dict[str, Any]) -> str:
        """Take the step, and return what came back. Raises Ended after the last answer of all."""
        ...


def serve(program_of: Callable[[dict[str, Any]], Program]) -> None:
    """Be such a process: the command line has the number of the pipe, and the settings as JSON."""
    pipe = int(sys.argv[1])
    with open(pipe, encoding="utf-8") as reading, open(pipe, "w", encoding="utf-8", closefd=False) as writing:
        _take_steps(program_of(json.loads(sys.argv[2])), reading, writing)


def _take_steps(program: Program, commands: IO[str], answers: IO[str]) -> None:
    def say(**what: Any) -> None:
        answers.write(json.dumps(what) + "\n")
        answers.flush()

    for command in commands:
        if command == "peek\n":
            say(**({"action": "end"} if program.finished else program.upcoming()))
            continue
        if program.finished:
            say(action="end", answer=DONE, ended=True)
            break
        step = program.upcoming()
        say(**step)
        try:
            say(answer=program.take(step))
        except Ended as ended:
            say(answer=str(ended), ended=True)
            break
