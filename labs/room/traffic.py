"""The room's traffic: seeded accesses of a few clients at a rate that can be changed, paused, and gone on with.

Event time passes SPEED times as fast as the clock, at any rate, so that a window is complete every second. Where it
stops: while the traffic is paused, event time stands still, and the last windows stay open.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable

from labs.pipeline.log.access_log import Access
from labs.pipeline.log.generate import START_MS, Traffic
from labs.pipeline.log.live_traffic import LiveTraffic
from labs.pipeline.records import WINDOW_MS

SPEED = 5  # seconds of event time per second
NOON_MS = START_MS + 12 * 3_600_000
CLIENTS = 6  # few, so that a window has few results and each can be seen
FOR_EVER = 1 << 40
MOST = 5_000  # records a second


class RoomTraffic:
    """Sends to `topic`, from now on while it is `on`; `watch` sees each access before it is sent."""

    def __init__(
        self,
        servers: str,
        topic: str,
        rate: float,
        on: bool,
        seed: int,
        watch: Callable[[Iterable[Access]], Iterable[Access]],
    ):
        self.rate, self.on = rate, on
        self._seed, self._watch = seed, watch
        self._speed = Speed()
        self.live = LiveTraffic((), servers, topic, 0, WINDOW_MS)
        self._begin()

    def set(self, *, rate: float | None = None, on: bool | None = None) -> None:
        """Change what is given; it takes effect at once."""
        same = rate is None or rate == self.rate
        self.rate = self.rate if rate is None else rate
        self.on = self.on if on is None else on
        if same:
            self.live.set_rate(self._wanted)
        else:
            self._begin()

    def shown(self) -> dict[str, object]:
        """Return the traffic of the room's state."""
        sent = self.live.records
        return {"on": self.on, "rate": self.rate, "sent": sent, "per_second": self._speed.of(sent)}

    @property
    def _wanted(self) -> float:
        return self.rate if self.on else 0

    def _begin(self) -> None:
        """Go on from the latest event time that was sent, at the present rate."""
        if not self.rate:
            self.live.set_rate(0)
            return
        start = max(NOON_MS, self.live.last_time_ms)
        self._seed += 1
        accesses = Traffic(
            FOR_EVER, self._seed, CLIENTS, self.rate / SPEED, bursts=False, start_ms=start, disorder_ms=1_000
        )
        self.live.set_rate(self._wanted, self._watch(accesses))


class Speed:
    """How fast a number has grown over the last seconds."""

    def __init__(self, seconds: float = 3.0):
        self._seconds = seconds
        self._seen: deque[tuple[float, int]] = deque()

    def of(self, number: int) -> float:
        """Note the number as it is now, and return its growth per second."""
        now = time.monotonic()
        self._seen.append((now, number))
        while now - self._seen[0][0] > self._seconds:
            self._seen.popleft()
        since, first = self._seen[0]
        return max(0.0, round((number - first) / (now - since), 1)) if now > since else 0.0
