"""Who is to write a query's next batch: the driver, if it is likely to be small, or else the executors."""

from __future__ import annotations

from exactly_once_kafka.spool import IN_MEMORY

# The driver writes a run's first batch if it has at most so many rows. Nobody knows how many there will be, so Spark
# looks for one more; if there is one, it computes the batch anew for the executors.
FIRST_FEW = 2000


class NextBatch:
    """What the batches before tell of the next one. `few`: the driver writes it if it is likely to have so many rows.

    `executors_can` is set to False when they turn out to lack what it takes.
    """

    def __init__(self, few: int):
        self._few = few
        self._rows = self._bytes = 0
        self._first = self.executors_can = True

    @property
    def is_for_driver(self) -> bool:
        """Tell whether the driver is to write it; of a run's first batch that cannot be told."""
        likely_small = not self._first and self._rows <= self._few and self._bytes <= IN_MEMORY
        return likely_small or not self.executors_can

    @property
    def to_try(self) -> int:
        """Up to how many rows the driver is to try to write; 0 if there is no need to try."""
        return min(self._few, FIRST_FEW) if self._first else 0

    def comes_after(self, rows: int, size: int) -> None:
        """Take note of a batch and its bytes. A large one now and then is enough to expect another."""
        self._rows, self._bytes = max(rows, self._rows // 2), max(size, self._bytes // 2)
        self._first = False
