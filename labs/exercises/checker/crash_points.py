"""The points at which the checker can kill a student's process, and the wrapper that reaches them.

A client that a student is handed is the real one inside a `Watched`: a call of one of its watched methods passes
the points "before NAME" and "after NAME", and is noted in the journal. Everything else goes straight through.
Where it stops: a call that bypasses the wrapper has no points. That is no protection against a student who cheats.
"""

from __future__ import annotations

import os
import signal
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from labs.exercises.checker.journal import RunJournal

LONGEST = 90  # characters of a call that the journal keeps


@dataclass(frozen=True)
class Crash:
    """SIGKILL the process when it reaches `point` for the `nth` time."""

    point: str
    nth: int = 1


class CrashPoints:
    """Counts how often each point is reached, and strikes at the one that is armed."""

    def __init__(self, journal: RunJournal, crash: Crash | None = None):
        self.journal, self._crash = journal, crash
        self._reached: Counter[str] = Counter()

    def reach(self, point: str) -> None:
        """Say that the code has come to `point`; it may not come back."""
        self._reached[point] += 1
        self.journal.write("point", point)
        if self._crash == Crash(point, self._reached[point]):
            self.strike(point)

    def strike(self, point: str) -> None:
        """SIGKILL this process and all that it started."""
        if os.getpgrp() != os.getpid():
            raise RuntimeError("only a process that leads its own group is killed on purpose")
        self.journal.write("kill", f"SIGKILL {point}()")
        os.killpg(os.getpgrp(), signal.SIGKILL)

    def call(self, name: str, function: Callable[[], Any], detail: str, describe: Callable[[Any], str] = str) -> Any:
        """Call `function` between its two points; the journal gets `detail`, and the result as `describe` puts it."""
        self.reach(f"before {name}")
        try:
            result = function()
        except Exception as error:
            self.journal.write("call", f"{detail} raised {type(error).__name__}")
            raise
        answer = "" if result is None else describe(result)
        self.journal.write("call", f"{detail[:LONGEST]} → {answer[:LONGEST]}" if answer else detail[:LONGEST])
        self.reach(f"after {name}")
        return result


class Watched:
    """A real client, some of whose methods pass crash points."""

    __slots__ = ("_name", "_points", "_real", "_watched")

    def __init__(self, name: str, real: Any, points: CrashPoints, watched: tuple[str, ...]):
        self._name, self._real, self._points, self._watched = name, real, points, watched

    def __getattr__(self, attribute: str) -> Any:
        value = getattr(self._real, attribute)
        if attribute not in self._watched:
            return value
        name = f"{self._name}.{attribute}"

        def watched(*arguments: Any, **options: Any) -> Any:
            detail = f"{name}({', '.join(map(_brief, arguments))})"
            return self._points.call(name, lambda: value(*arguments, **options), detail, self._describe)

        return watched

    def _describe(self, result: Any) -> str:
        """Return what the journal says of what a call returned; nothing by default."""
        return ""


def _brief(argument: object) -> str:
    """Return an argument in a few printable characters; of bytes that are no text, how many there are."""
    if isinstance(argument, bytes):
        try:
            argument = argument.decode()
        except UnicodeDecodeError:
            return f"{len(argument)} bytes"
        if not argument.replace("\n", " ").isprintable():
            return f"{len(argument)} bytes"
    if type(argument).__name__ == "TopicPartition":  # not imported: most exercises need no Kafka
        return f"offset {getattr(argument, 'offset', None)} of {getattr(argument, 'topic', None)}"
    if isinstance(argument, list):
        return ", ".join(map(_brief, argument[:3]))
    text = " ".join(str(argument).split())
    return text if len(text) <= 40 else text[:39] + "…"
