"""The same count on other engines, exactly once: what a record costs after the warm-up, and the latency of a result.

Each engine drains a small backlog and a large one, both audited. The result is the difference between the two, in which
start and warm-up cancel out. The engines take turns, so that a slow phase of the machine slows all of them.

Limitations: traffic, broker and reader share the machine's cores with the engine. An engine with one task for each
partition has at most one for each core. If an engine is still warming up at the end of the small backlog, the result
depends on the sizes of the backlogs. JVMs use all of their compilers, as they do by default, so that their first
result comes later than in lessons and comparisons. Spark's batches come back to back, as they do by default.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from labs.engines.catalogue import chosen_engines
from labs.engines.engine import Engine
from labs.judging.engine_comparison import Size, compare
from labs.judging.engine_run import SpeedRun

SEED = 7
OURS = "spark"


class Pair(NamedTuple):
    """One engine's runs with the small and with the large backlog."""

    small: SpeedRun
    large: SpeedRun

    @property
    def records_per_second(self) -> float:
        """The rate at which the additional records were drained. Raises RuntimeError if it cannot be computed."""
        seconds = (self.large.drained or 0.0) - (self.small.drained or 0.0)  # both were valid, so both were drained
        if seconds <= 0:
            raise RuntimeError(f"{self.small.engine} took no longer for the large backlog: take a larger one (--large)")
        return (self.large.backlog - self.small.backlog) / seconds

    @property
    def latencies(self) -> list[float]:
        return [*self.small.latencies, *self.large.latencies]


def measure(
    small: int = 2_000_000,
    large: int = 10_000_000,
    rounds: int = 1,
    engines: Sequence[str] | None = None,
    partitions: int = 1,
) -> Iterator[tuple[str, float, str]]:
    """Yield (what, value, unit): medians of the rounds for each engine, and each as a ratio to the lab's own job.

    `engines` are those beside the lab's own; None: all that are installed. Raises NotInstalled, and RuntimeError for a
    run that the auditor does not find valid: the speed of a wrong count means nothing.
    """
    names = dict.fromkeys([OURS, *engines]) if engines else None  # each once
    taking_part = chosen_engines(list(names) if names else None)
    sizes = [Size(backlog=backlog, long_run=True, partitions=partitions) for backlog in (small, large)]
    rows = [tuple(_runs(taking_part, size) for size in sizes) for _ in range(rounds)]
    found = {each.name: _told([Pair(few[each.name], many[each.name]) for few, many in rows]) for each in taking_part}
    for name, told in found.items():
        for what, (value, unit) in told.items():
            yield f"{name}: {what}", value, unit
            if name != OURS:
                yield f"{name}: {what}, {OURS} = 1", value / found[OURS][what][0], ""


def _runs(engines: Sequence[Engine], size: Size) -> dict[str, SpeedRun]:
    runs = {}
    for found in compare(engines, [SEED], size, ["speed"]):
        if not isinstance(found.run, SpeedRun) or not found.run.audit.valid:
            raise RuntimeError(f"{found.run.engine}, {size.backlog:,} records: {found.run.audit}")
        runs[found.run.engine] = found.run
    return runs


def _told(pairs: Sequence[Pair]) -> dict[str, tuple[float, str]]:
    latencies = [each for pair in pairs for each in pair.latencies]
    hundredths = statistics.quantiles(latencies, n=100, method="inclusive")

    def median(value: Callable[[Pair], float | None]) -> float:
        return statistics.median(value(pair) or 0 for pair in pairs)

    return {
        "from the start to the first result": (median(lambda pair: pair.small.first_result), "s"),
        "to the first result of the large backlog": (median(lambda pair: pair.large.first_result), "s"),
        "from the start to the last result": (median(lambda pair: pair.large.drained), "s"),
        "drained after the warm-up": (median(lambda pair: pair.records_per_second), "records/s"),
        "latency, p50": (hundredths[49], "s"),
        "latency, p99": (hundredths[98], "s"),
        "cores busy at a steady pace": (median(lambda pair: pair.large.cores), "cores"),
        "memory": (median(lambda pair: pair.large.memory_mb), "MB"),
    }
