"""Micro-batches as a checkpoint knows them."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field, replace

from labs.evidence.checkpoint.files import Offsets, Plan, StateFile


@dataclass(frozen=True)
class Batch:
    """A micro-batch as the checkpoint knows it: [start, end) in each topic partition, times in epoch millis.

    `watermark_ms` is the watermark that it runs with (0: none yet), `next_watermark_ms` the one it leads to.
    `state` names, per stateful operator, the partitions that hold the version which this batch writes.
    `sources` are the ends as Spark wrote them, for sources that are not Kafka topics.
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
        """How many offsets the batch spans: its records, and whatever else takes an offset in a topic."""
        known = self.end and self.end.keys() <= self.start.keys()
        return sum(end - self.start[at] for at, end in self.end.items()) if known else None


def ranges(batch: Batch) -> str:
    """Write what the batch reads as `topic-partition: start–end`; partitions where that is nothing are left out.

    Of a source that is no Kafka topic, write where it ends, as Spark does.
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
    """Return the batches, by what the logs and the state say of each; `start` is where batch 0 began."""
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
            # The store counts versions from 1: batch 0 turns version 0, which is empty and no file, into 1.
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
