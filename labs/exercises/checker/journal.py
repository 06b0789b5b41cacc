"""The journal of a student's run: what the code did, in order, written so that a SIGKILL loses none of it.

One line of JSON per event, each written by a single `write` to a file opened for appending. What a process has
written belongs to the operating system, so it survives the process, though not a power cut.
"""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any


class RunJournal:
    """Appends events to `path`; each says when (seconds since the first run began) and what."""

    def __init__(self, path: str | Path, began: float):
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        self._began = began

    def write(self, kind: str, what: str, **more: Any) -> None:
        """Write an event. Kinds: "phase", "call", "point", "kill", "end"."""
        event = {"when": round(time.time() - self._began, 3), "kind": kind, "what": what, **more}
        os.write(self._file, json.dumps(event).encode() + b"\n")


def read_journal(path: str | Path) -> list[dict[str, Any]]:
    """Return the events written so far."""
    try:
        lines = Path(path).read_bytes().split(b"\n")[:-1]  # what follows the last line end is not whole yet
    except FileNotFoundError:
        return []
    return [json.loads(line) for line in lines]
