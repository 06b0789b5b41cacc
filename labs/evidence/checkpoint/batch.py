"""Micro-batches as a checkpoint describes them, and as Spark's progress reports do (`batch_table`)."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from labs.evidence.checkpoint.files import Offsets, Plan, StateFile

if TYPE_CHECKING:
    import pandas
    from pyspark.sql.streaming import StreamingQuery


@dataclass(frozen=True)
class Batch:
    """A micro-batch as the checkpoint knows it: [start, end) in each topic partition, times in epoch millis.

    `watermark_ms` is the watermark that it runs with (0: none yet), `next_watermark_ms` that of the next batch.
    `state` lists, per stateful operator, the partitions that hold the version which this batch writes.
    `sources` holds the end offsets as Spark wrote them, for sources other than Kafka topics.
    """

    batch_id: int
    planned: bool
    committed: bool
    start: Offsets = field(default_factory=dict)
    end: Offsets = field(default_factory=dict)
    watermark_ms: int | None = None
    next_watermark_ms: int | None = None
    planned_at_ms: int | None = None
    state: dict[int, tuple[int, ...]] = field(default_factory=dict)
    sources: tuple[str | None, ...] = ()
    damaged: tuple[str, ...] = ()

    @property
    def status(self) -> str:
        """One of committed, in flight, damaged (a file of it is missing or cannot be read)."""
        return "damaged" if self.damaged else "committed" if self.committed else "in flight"

    @property
    def offsets(self) -> int | None:
        """How many offsets the batch spans: its records, and control and aborted records, which take offsets too."""
        known = self.end and self.end.keys() <= self.start.keys()
        return sum(end - self.start[at] for at, end in self.end.items()) if known else None


def ranges(batch: Batch) -> str:
    """Return the offset ranges that the batch reads, as `topic-partition: start–end`, without empty ones.

    For a source other than Kafka, return its end offset as Spark wrote it.
    """
    if not batch.end:
        return ", ".join(filter(None, batch.sources))
    moved = [(at, batch.start.get(at), end) for at, end in sorted(batch.end.items()) if batch.start.get(at) != end]
    return ", ".join(f"{topic}-{p}: {'?' if start is None else start}–{end}" for (topic, p), start, end in moved)


def batches_of(
    plans: dict[int, Plan | None],
    commits: dict[int, int | None],
    start: Offsets,
    state: tuple[StateFile, ...],
    damage: dict[str, str],
) -> tuple[Batch, ...]:
    """Return the batches that the logs and the state describe; `start` holds the first offsets of batch 0."""
    written: defaultdict[int, defaultdict[int, set[int]]] = defaultdict(lambda: defaultdict(set))
    for file in state:
        written[file.version][file.operator].add(file.partition)
    batches = []
    for n, plan in plans.items():
        damaged = tuple(name for name in (f"offsets/{n}", f"commits/{n}") if name in damage)
        batch = Batch(
            batch_id=n,
            planned=plan is not None,
            committed=n in commits and f"commits/{n}" not in damage,
            next_watermark_ms=commits.get(n),
            # The store counts versions from 1: batch 0 writes version 1. Version 0 is empty and has no file.
            state={operator: tuple(sorted(found)) for operator, found in written[n + 1].items()},
            damaged=damaged,
        )
        if plan:
            batch = replace(
                batch,
                start=start,
                end=plan.end,
                watermark_ms=plan.watermark_ms,
                planned_at_ms=plan.planned_at_ms,
                sources=plan.sources,
            )
        batches.append(batch)
        start = plan.end if plan else {}
    return tuple(batches)


def batch_table(query: StreamingQuery) -> pandas.DataFrame:
    """Return one row per batch: records read, results emitted, counts still in state, and the watermark.

    `watermark` (UTC) is the one that the batch ran with; the batch's own events move that of the next one.
    """
    rows = []
    for progress in query.recentProgress:
        [state] = progress.stateOperators
        watermark = progress.eventTime.get("watermark", "")
        rows.append(
            {
                "batch": progress.batchId,
                "records read": progress.numInputRows,
                "results emitted": state.numRowsRemoved,
                "counts in state": state.numRowsTotal,
                "watermark": "-" if watermark.startswith("1970") else watermark[11:19],
            }
        )
    import pandas  # here, since the import is slow

    return pandas.DataFrame(rows).set_index("batch")
