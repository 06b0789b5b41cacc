"""What chaos did, and when: the journal that a run can be read by, and roughly repeated."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import Any


@dataclass
class Strike:
    """One fault: its kind, when it began and was over (seconds since the chaos began), and what it was exactly.

    `injected` is False for what went wrong by itself in consequence, such as a driver that lost its broker.
    """

    kind: str
    began: float
    detail: str = ""
    ended: float | None = None
    injected: bool = True

    def as_dict(self) -> dict[str, Any]:
        return {**asdict(self), "began": round(self.began, 1), "ended": self.ended and round(self.ended, 1)}


class Journal:
    """A list of strikes that several threads write to; `report` is told of each as it begins."""

    def __init__(self, report: Callable[[Strike], object] = lambda strike: None):
        self.strikes: list[Strike] = []
        self.started, self._report, self._lock = time.monotonic(), report, threading.Lock()

    @property
    def now(self) -> float:
        """Seconds since the chaos began."""
        return time.monotonic() - self.started

    def note(self, kind: str, detail: str = "", injected: bool = True) -> Strike:
        """Write down a strike that is over at once."""
        strike = Strike(kind, self.now, detail, self.now, injected)
        with self._lock:
            self.strikes.append(strike)
        self._report(strike)
        return strike

    @contextmanager
    def strike(self, kind: str, detail: str = "") -> Iterator[Strike]:
        """Write down a strike that lasts as long as the `with` block."""
        strike = self.note(kind, detail)
        strike.ended = None
        try:
            yield strike
        finally:
            strike.ended = self.now
