"""Counts from the log itself, without Kafka and Spark, what the pipeline must find.

Limitations: the auditor is independent of the pipeline that counts, but not of the parser: both get the accesses that
`labs.pipeline.log` reads, so an audit cannot show that the parser misreads a line. For this there is
`tests/pipeline/log/test_differential.py`, which compares the parser with a second one on known and on generated lines.
The two parsers share no code.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping

from labs.pipeline.log.access_log import Access
from labs.pipeline.records import window_start


class Expected:
    """Counts per (window start in epoch millis, IP), filled while the accesses pass through `watch`."""

    def __init__(self) -> None:
        self.counts: Counter[tuple[int, str]] = Counter()

    def watch(self, accesses: Iterable[Access]) -> Iterator[Access]:
        """Yield the accesses unchanged and count each."""
        counts = self.counts
        for access in accesses:
            time_ms, ip = access
            counts[window_start(time_ms), ip] += 1
            yield access


def requests_per_window(counts: Mapping[tuple[int, str], int]) -> Counter[int]:
    """Return the requests of all IPs per window start; `counts` is per (window start in epoch millis, IP)."""
    totals: Counter[int] = Counter()
    for (window, _), count in counts.items():
        totals[window] += count
    return totals


def requests_per_ip(counts: Mapping[tuple[int, str], int]) -> Counter[str]:
    """Return the requests of each IP in all windows; `counts` is per (window start in epoch millis, IP)."""
    totals: Counter[str] = Counter()
    for (_, ip), count in counts.items():
        totals[ip] += count
    return totals


def busiest_ips(totals: Mapping[str, int], n: int) -> list[tuple[str, int]]:
    """Return (IP, requests) of the n IPs with the most requests, most first; equal numbers are sorted by IP."""
    return sorted(totals.items(), key=lambda item: (-item[1], item[0]))[:n]


def busiest_window(totals: Mapping[int, int]) -> int:
    """Return the window start with the most requests, the first of several. Raises ValueError if there is none."""
    return max(totals, key=lambda window: (totals[window], -window))


def count_by_window(accesses: Iterable[Access]) -> Counter[tuple[int, str]]:
    """Count accesses per (window start in epoch millis, IP)."""
    expected = Expected()
    for _ in expected.watch(accesses):
        pass
    return expected.counts
