"""A student's notes: what was predicted, checked and answered, in a file on the desk. Nothing leaves the machine.

One JSON object a line in `.progress.jsonl`; a line that cannot be read is left out, and reported by `broken`.
Where there is no desk (a lesson opened in `notebooks/`, a test, a published page) nothing is kept.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

MANIFEST = ".desk.json"  # what makes a directory a desk
NOTES = ".progress.jsonl"

PREDICTED, COMPARED, CHECKED, TICKET = "predicted", "compared", "checked", "ticket"


@dataclass
class Notes:
    """The notes in one file."""

    path: Path
    broken: int = 0
    kept = True

    def add(self, kind: str, **values: Any) -> None:
        """Append one note. A disk that is full or read-only costs the note, not the lesson."""
        line = json.dumps({"kind": kind, "at": datetime.now(UTC).isoformat(timespec="seconds"), **values})
        with contextlib.suppress(OSError), self.path.open("a", encoding="utf-8") as file:
            file.write(line + "\n")

    def of(self, kind: str, **values: Any) -> list[dict[str, Any]]:
        """Return the notes of a kind that have these values, oldest first."""
        return [note for note in self if note.get("kind") == kind and values.items() <= note.items()]

    def __iter__(self) -> Iterator[dict[str, Any]]:
        self.broken = 0
        try:
            lines = self.path.read_text(encoding="utf-8", errors="replace").splitlines()
        except OSError:
            return
        for line in lines:
            try:
                note = json.loads(line)
            except ValueError:
                note = None
            if isinstance(note, dict):
                yield note
            else:
                self.broken += 1


class NoNotes(Notes):
    """Where there is no desk."""

    kept = False

    def __init__(self) -> None:
        super().__init__(Path(NOTES))

    def add(self, kind: str, **values: Any) -> None:
        """Keep nothing."""

    def __iter__(self) -> Iterator[dict[str, Any]]:
        return iter(())


def notes_of(directory: Path | None = None) -> Notes:
    """Return the notes of the desk that `directory` (default: the working directory) is, or lies on."""
    here = (directory or Path.cwd()).resolve()
    for place in (here, here.parent):
        if (place / MANIFEST).exists():
            return Notes(place / NOTES)
    return NoNotes()
