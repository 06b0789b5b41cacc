"""How long to wait for Kafka: until the time is up, or until soon after the query was stopped."""

from __future__ import annotations

import time
from collections.abc import Callable

SLICE = 0.1  # seconds: most calls to Kafka wait no longer in one piece, so that a stopped query ends soon
ASK = 0.5  # seconds between two looks at the query


class QueryStopped(RuntimeError):
    """`query.stop()` was called while the sink waited."""


class Deadline:
    """A time limit of `seconds` from now.

    `stopped` tells whether the query was stopped. `has_time` calls it, but at most every `ask` seconds.
    """

    def __init__(self, seconds: float, stopped: Callable[[], bool] = lambda: False, ask: float = ASK):
        self.seconds = seconds
        self._stopped, self._ask = stopped, ask
        self._started = time.monotonic()
        self._asked = self._started

    def restarted(self) -> Deadline:
        """Return a deadline with the same number of seconds, from now."""
        return Deadline(self.seconds, self._stopped, self._ask)

    @property
    def elapsed(self) -> float:
        return time.monotonic() - self._started

    def has_time(self) -> bool:
        """Tell whether there is time left. Raises QueryStopped if the query was stopped."""
        now = time.monotonic()
        if now - self._asked >= self._ask:
            self._asked = now
            if self._stopped():
                raise QueryStopped("the query was stopped")
        return now - self._started < self.seconds


def seconds_to_abort(failure: BaseException) -> float:
    """Return how many seconds Kafka may take to abort after a failure. After that, the next epoch aborts."""
    return SLICE if isinstance(failure, QueryStopped) else 5.0
