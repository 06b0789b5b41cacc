"""What the pipeline ought to find, counted from the log itself, without Kafka and without Spark.

Where it stops: the lines are read once, by the parser that feeds the pipeline too, so that a line which that parser
misreads is misread on both sides. A second parser, in `tests/pipeline/log/second_parser.py`, is there for that.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator

from labs.pipeline.log.access_log import Access
from labs.pipeline.records import WINDOW_MS, window_start


class Expected:
    """Counts per (window start in epoch millis, IP), filled while the accesses pass through `watch`."""

    def __init__(self, window_ms: int = WINDOW_MS):
        self.counts: Counter[tuple[int, str]] = Counter()
        self._window_ms = window_ms

    def watch(self, accesses: Iterable[Access]) -> Iterator[Access]:
        """Yield the accesses unchanged and count each."""
        counts, window_ms = self.counts, self._window_ms
        for access in accesses:
            time_ms, ip = access
            counts[window_start(time_ms, window_ms), ip] += 1
            yield access


def count_by_window(accesses: Iterable[Access], window_ms: int = WINDOW_MS) -> Counter[tuple[int, str]]:
    """Count accesses per (window start in epoch millis, IP)."""
    expected = Expected(window_ms)
    for _ in expected.watch(accesses):
        pass
    return expected.counts
