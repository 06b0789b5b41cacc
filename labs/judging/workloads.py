"""The workloads by name."""

from __future__ import annotations

from collections.abc import Callable

from labs.judging.copies import Copy
from labs.judging.counts import Count
from labs.judging.transfers import Transfer
from labs.judging.workload import Workload

WORKLOADS: dict[str, Callable[[int, int, int], Workload]] = {"copy": Copy, "count": Count, "transfer": Transfer}
RECORDS = {"copy": 4_000, "count": 20_000, "transfer": 4_000}  # the defaults
# The default number grows with the strikes, by so many records for each slice: each half of a slice must complete a
# window, and the first window is complete after 2,000 records.
OF_A_SLICE = {"copy": 200, "count": 5_000, "transfer": 200}
MOST_STRIKES = 30  # for which the default grows
PARTITIONS = {"copy": 2, "count": 1, "transfer": 2}


def workload_called(name: str, records: int | None, partitions: int | None, seed: int, strikes: int = 0) -> Workload:
    """Make a workload; None takes its default, which is enough for so many strikes. Raises ValueError."""
    if name not in WORKLOADS:
        raise ValueError(f"no workload is called {name!r}; there are {', '.join(WORKLOADS)}")
    enough = max(RECORDS[name], OF_A_SLICE[name] * (min(strikes, MOST_STRIKES) + 1))
    records, partitions = records or enough, partitions or PARTITIONS[name]
    return WORKLOADS[name](records, partitions, seed)
