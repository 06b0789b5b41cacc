"""A lane: a thread that strikes one part of the pipeline again and again, at moments that a seed decides."""

from __future__ import annotations

import threading
from collections.abc import Callable
from random import Random

from labs.faults.chaos.journal import Journal

STEP = 0.05  # seconds between two looks


class Lane(threading.Thread):
    """Strikes by `strike(kind)` with kinds drawn from `kinds`, until `calm`.

    Each lane has a random sequence of its own, so that what one lane draws does not depend on how quick the
    others are. What goes wrong in the lane itself ends it, and is kept in `error`.
    """

    lane_name = ""
    gap = (5.0, 15.0)  # seconds between two strikes

    def __init__(self, kinds: tuple[str, ...], seed: int, journal: Journal):
        super().__init__(name=f"chaos-{self.lane_name}", daemon=True)
        self.kinds, self.journal = kinds, journal
        self.random = Random(f"{seed} {self.lane_name}")
        self.error: Exception | None = None
        self._calm = threading.Event()

    def calm(self) -> None:
        """Strike no more. What was broken is mended when the thread has ended."""
        self._calm.set()

    @property
    def is_calm(self) -> bool:
        return self._calm.is_set()

    def run(self) -> None:
        try:
            self.work()
        except Exception as error:
            self.error = error

    def work(self) -> None:
        while self.kinds and not self._calm.wait(self.random.uniform(*self.gap)):
            self.strike(self.random.choice(self.kinds))

    def strike(self, kind: str) -> None:
        raise NotImplementedError

    def wait(self, seconds: float, until: Callable[[], object] = lambda: False) -> bool:
        """Let so many seconds pass, fewer if `until` comes true. Tell whether it did."""
        deadline = self.journal.now + seconds
        while not (met := until()) and self.journal.now < deadline:
            threading.Event().wait(STEP)
        return bool(met)
