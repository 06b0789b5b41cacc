"""Waiting that ends: when the time is up, or soon after the query was stopped."""

from __future__ import annotations

import time
from collections.abc import Callable

SLICE = 0.1  # seconds: most calls to Kafka wait no longer in one piece, so that a stopped query ends soon
ASK = 0.5  # seconds between two looks at the query


class QueryStopped(RuntimeError):
    """`query.stop()` was called while the sink waited."""


class Patience:
    """So many seconds, from now on. `stopped` says whether the query was stopped; it is asked every `ask` seconds."""

    def __init__(self, seconds: float, stopped: Callable[[], bool] = lambda: False, ask: float = ASK):
        self.seconds = seconds
        self._stopped, self._ask = stopped, ask
        self._started = time.monotonic()
        self._asked = self._started

    def anew(self) -> Patience:
        """Return as much patience again, from now on."""
        return Patience(self.seconds, self._stopped, self._ask)

    @property
    def elapsed(self) -> float:
        return time.monotonic() - self._started

    def lasts(self) -> bool:
        """Tell whether there is time left. Raises QueryStopped if there is no query left to wait for."""
        now = time.monotonic()
        if now - self._asked >= self._ask:
            self._asked = now
            if self._stopped():
                raise QueryStopped("the query was stopped")
        return now - self._started < self.seconds
