"""Who should write the next batch, executors or the driver, by the sizes of the batches before it.

The transport of the executors asks (`ExecutorsTransport.rows`). Whether executors can write at all is decided once, by
`ExactlyOnceKafkaSink`.
"""

from __future__ import annotations

from exactly_once_kafka.arrow_rows import IN_MEMORY

# The driver writes a run's first batch if that has at most so many rows. The number is not known in advance, so Spark
# computes up to one row more. If there is one more, Spark computes the whole batch again, for the executors.
FIRST_FEW = 2000


class NextBatch:
    """Estimates the size of the next batch by the last two batches that had rows.

    The driver writes the next batch if one of these two had at most `few` rows. So executors write a batch that follows
    two large ones, and every batch if `few` is 0. After a single large batch, as after a pause, executors do not start
    Python for the small batches that follow.
    `executors_can` is set to False when executors turn out to lack something that they need to write.
    """

    def __init__(self, few: int):
        self._few = few
        self._last_two: list[tuple[int, int]] = []  # rows, bytes
        self.executors_can = True

    @property
    def is_for_driver(self) -> bool:
        """Tell whether the driver should write the next batch. False for a run's first, whose size is not known."""
        likely_small = any(rows <= self._few and size <= IN_MEMORY for rows, size in self._last_two)
        return (self._few > 0 and likely_small) or not self.executors_can

    @property
    def first_limit(self) -> int:
        """The largest number of rows with which the driver should write a run's first batch; 0 for a later batch."""
        return 0 if self._last_two else min(self._few, FIRST_FEW)

    def note(self, rows: int, size: int) -> None:
        """Note the rows and bytes of a batch. A run's first one counts as two; a later one without rows is ignored."""
        if not self._last_two:
            self._last_two = [(rows, size)] * 2
        elif rows:
            self._last_two = [self._last_two[1], (rows, size)]
