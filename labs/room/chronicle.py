"""What was done to the pipeline, when, and what came of it, in words.

A consequence is told by what was seen afterwards: a function that returns words, or "" while nothing has shown. It is
asked again for as long as its words end in MORE or nothing else is struck, and for a while after that, since some
consequences have a second part.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from labs.room.state import STRIKES

Consequence = Callable[[], str]
SECOND_PART = 8.0  # seconds
MORE = " …"


@dataclass
class Entry:
    """One strike; `arguments` are the order's."""

    number: int
    time: float
    strike: str
    words: str
    arguments: dict[str, Any]
    consequence: str = ""
    look: Consequence | None = None
    shown_at: float | None = None

    def shown(self) -> dict[str, Any]:
        names = ("number", "time", "strike", "words", "consequence")
        return {name: getattr(self, name) for name in names}


class Chronicle:
    """The strikes of a session; the last ones are shown, and looked after."""

    def __init__(self, now: Callable[[], float]):
        self.all: deque[Entry] = deque(maxlen=1_000)
        self._now = now
        self._count = 0

    def note(self, strike: str, words: str, look: Consequence | str = "", **arguments: Any) -> Entry:
        """Write down a strike; `look` is what came of it, or finds that out."""
        self._count += 1
        entry = Entry(self._count, round(self._now(), 1), strike, words, arguments)
        if isinstance(look, str):
            entry.consequence = look
        else:
            entry.look = look
        self.all.append(entry)
        return entry

    def look(self) -> None:
        """Ask what has come of the strikes."""
        for entry in list(self.all)[-STRIKES:]:
            if entry.look is None:
                continue
            entry.consequence = entry.look() or entry.consequence
            if entry.consequence and not entry.consequence.endswith(MORE) and entry.shown_at is None:
                entry.shown_at = time.monotonic()
            alone = entry is self.all[-1]  # then whatever shows has come of it, however slow the machine is
            if not alone and entry.shown_at is not None and time.monotonic() - entry.shown_at > SECOND_PART:
                entry.look = None

    def end_act(self) -> None:
        """Ask no more: what comes now, other strikes have brought about."""
        for entry in self.all:
            entry.look = None

    def shown(self) -> list[dict[str, Any]]:
        """Return the chronicle of the room's state."""
        return [entry.shown() for entry in list(self.all)[-STRIKES:]]
