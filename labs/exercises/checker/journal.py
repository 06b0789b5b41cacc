"""The journal of a student's run: what the code did, in order, written so that a SIGKILL loses none of it.

One line of JSON per event, each written by a single `write` to a file opened for appending. What a process has
written belongs to the operating system, so it survives the process, though not a power cut. The file lies where the
student's code can reach it: a journal that was damaged is no evidence, and says nothing about the code.
"""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any

from labs.equipment.plain_text import one_line

KINDS = ("phase", "call", "point", "kill", "end", "answer", "state")
# How a run ends by its own word; a process that ends without one was killed, or has left by a back door.
NOT_JUDGED = "could not be judged"  # nothing that happened says anything about the code
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
LONGEST = 2_000  # characters of what an event says


class TornJournal(ValueError):
    """The journal is not what a run has written: the message says where, and that nothing follows from it."""


class RunJournal:
    """Appends events to `path`; each says when (seconds since the first run began) and what."""

    def __init__(self, path: str | Path, began: float):
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        self._began, self.phase = began, ""

    def write(self, kind: str, what: str, **more: Any) -> None:
        """Write an event, or end the process: a run whose journal has a hole could be judged wrongly."""
        if kind == "phase":
            self.phase = what
        event = {"when": round(time.time() - self._began, 3), "kind": kind, "what": what[:LONGEST], **more}
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
        lines = Path(path).read_bytes().split(b"\n")[:-1]  # what follows the last line end is not whole yet
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
