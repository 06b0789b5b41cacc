"""The points at which the checker can kill a student's process, the journal of its run, and crashes within a batch.

A student gets a real client inside a `Watched`: a call of one of its watched methods passes the points "before NAME"
and "after NAME", and is noted in the journal. All other calls go straight to the client. Limitations: a call that
bypasses the wrapper passes no points, so a student can cheat.

The journal has one line of JSON per event. A single `write` to a file opened for appending hands the event to the
operating system: it then survives a SIGKILL of the process, but not a power cut. The student's code could damage the
file, so nothing is concluded about the code from a damaged journal.

A fault within a micro-batch strikes once, when batch N reaches its point. It either raises, so that the query fails and
is restarted in the same Spark, or kills the process with its Spark.
"""

from __future__ import annotations

import json
import os
import signal
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from labs.equipment.plain_text import one_line
from labs.faults.fault_points import InjectedCrash

KINDS = ("phase", "call", "point", "kill", "end", "answer", "state")


class KafkaSilent(TimeoutError):
    """The broker of an exercise has not answered: this says nothing about the code that asked."""


NOT_JUDGED = "could not be judged"  # nothing that happened says anything about the code
# The endings that a run notes itself. A process that notes none was killed, or ended by os._exit.
ENDINGS = (
    "returned",
    "crashed",
    "syntax error",
    "import error",
    "missing",
    "signature",
    "exited",
    "out of memory",
    NOT_JUDGED,
)
NOT_WRITTEN = 74  # the exit code of a process that cannot write its journal any more
LONGEST_EVENT = 2_000  # characters of what an event says


class TornJournal(ValueError):
    """The journal is damaged, so nothing follows from it; the message says where."""


class RunJournal:
    """Appends events to `path`; each says when (seconds since the first run began) and what."""

    def __init__(self, path: str | Path, began: float):
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        self._began, self.phase = began, ""

    def write(self, kind: str, what: str, **more: Any) -> None:
        """Write an event, or end the process: a journal with a gap could be judged wrongly."""
        if kind == "phase":
            self.phase = what
        event = {"when": round(time.time() - self._began, 3), "kind": kind, "what": what[:LONGEST_EVENT], **more}
        line = json.dumps(event).encode() + b"\n"
        try:
            written = os.write(self._file, line)
        except OSError:  # the disk is full, or the code has closed the file
            written = 0
        if written < len(line):
            os._exit(NOT_WRITTEN)


def read_journal(path: str | Path) -> list[dict[str, Any]]:
    """Return the events written so far. Raises TornJournal."""
    try:
        lines = Path(path).read_bytes().split(b"\n")[:-1]  # the line after the last line end is not complete yet
    except FileNotFoundError:
        return []
    except OSError as error:
        raise TornJournal(f"the journal of the run cannot be read: {error.strerror or error}") from error
    return [_event(number, line) for number, line in enumerate(lines, 1)]


def _event(number: int, line: bytes) -> dict[str, Any]:
    try:
        event = json.loads(line)
        if _is_event(event):
            return event
    except (ValueError, RecursionError):
        pass
    text = one_line(line[:60].decode(errors="replace"))
    raise TornJournal(f"line {number} of the journal of the run is no event: {text!r}; did the code write into it?")


def _is_event(event: Any) -> bool:
    return (
        isinstance(event, dict)
        and isinstance(event.get("when"), int | float)
        and event.get("kind") in KINDS
        and isinstance(event.get("what"), str)
        and (event["kind"] != "end" or event.get("ending") in ENDINGS)
    )


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
        """Note that the code has reached `point`; if a crash is due there, this does not return."""
        self._reached[point] += 1
        self.journal.write("point", point)
        if self._crash == Crash(point, self._reached[point]):
            self.strike(point)

    def strike(self, point: str) -> None:
        """SIGKILL this process and its children."""
        if os.getpgrp() != os.getpid():
            raise RuntimeError("expected to lead a process group; refused to kill other processes with this one")
        self.journal.write("kill", f"SIGKILL {point}()")
        os.killpg(os.getpgrp(), signal.SIGKILL)

    def call(self, name: str, function: Callable[[], Any], detail: str, describe: Callable[[Any], str] = str) -> Any:
        """Call `function` between its two points; the journal gets `detail`, and the result in words by `describe`."""
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
        """Return what the journal says about the result of a call; nothing by default."""
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


BatchFault = tuple[str, int, Literal["raise", "kill"]]


class BatchPoints(CrashPoints):
    """Crash points that know which batch is being published."""

    batch_id = -1
    armed: list[BatchFault] = []  # noqa: RUF012  replaced for each round, never changed in the class

    def reach(self, point: str) -> None:
        self._reached[point] += 1
        self.journal.write("point", point)
        for fault in self.armed:
            if tuple(fault[:2]) == (point, self.batch_id):
                self.armed = [each for each in self.armed if each is not fault]
                if fault[2] == "kill":
                    self.strike(point)
                self.journal.write("kill", f"crash {point}(), batch {self.batch_id}")
                raise InjectedCrash(f"crashed on purpose: batch {self.batch_id} {point}")
