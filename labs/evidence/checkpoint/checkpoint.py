"""Read the checkpoint of any Spark Structured Streaming query: which batches are planned, done, or in flight.

Guarantee: it only reads files, without Spark, and reports what Spark will find when it restarts.
Limitations: a local path; checksums are not verified; a running query may be a step ahead of what was read;
Spark deletes the logs of all but the last `spark.sql.streaming.minBatchesToRetain` (100) batches, so the first
batch that is left has no start offsets.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

from labs.evidence.checkpoint.batch import Batch, batches_of, ranges
from labs.evidence.checkpoint.files import (
    CheckpointError,
    Offsets,
    StateFile,
    Torn,
    checkpoint_directory,
    log_files,
    read_commit,
    read_first_offsets,
    read_plan,
    read_query_id,
    state_files,
)

if TYPE_CHECKING:
    import pandas

__all__ = ["Batch", "Checkpoint", "CheckpointError", "Offsets", "StateFile", "damage", "ranges", "read_checkpoint"]

REFUSED = "Spark refuses to restart"
UNREAD = "Spark does not read it again"
NO_ID = f"{REFUSED}: restore it from a copy, or begin with a new checkpoint"
NO_PLAN = f"{REFUSED}: restore it from a copy (without it Spark plans the batch again, perhaps with other offsets)"
NO_COMMIT = f"{REFUSED}: delete it, and the batch runs again"
NOT_LAST = "Spark runs only the last batch again"


@dataclass(frozen=True)
class Checkpoint:
    """What a checkpoint directory holds. `damage` names each file that cannot be read, and the consequence."""

    path: Path
    query_id: str | None
    batches: tuple[Batch, ...] = ()
    state: tuple[StateFile, ...] = ()
    damage: tuple[str, ...] = ()

    @property
    def last_planned(self) -> Batch | None:
        return next((batch for batch in reversed(self.batches) if batch.planned), None)

    @property
    def last_committed(self) -> Batch | None:
        return next((batch for batch in reversed(self.batches) if batch.committed), None)

    @property
    def in_flight(self) -> Batch | None:
        """The batch that a restart runs again: planned and not committed."""
        last = self.batches[-1] if self.batches else None
        return last if last and last.status == "in flight" else None

    @property
    def owes_a_batch(self) -> bool:
        """Tell whether the last batch is committed and moved the watermark: the windows it closed are not emitted yet.

        One more batch emits them. A running query adds that batch by itself. A restarted query does not: it waits
        for new records, and with the trigger availableNow it ends if there are none.
        """
        last = self.batches[-1] if self.batches else None
        return bool(last and last.status == "committed" and (last.next_watermark_ms or 0) > (last.watermark_ms or 0))

    @property
    def partitions(self) -> dict[int, int]:
        """The number of state partitions per stateful operator."""
        return dict(Counter(operator for operator, _ in sorted({(f.operator, f.partition) for f in self.state})))

    @property
    def summary(self) -> str:
        """Say in one sentence what a restart does."""
        refused = next((damage for damage in self.damage if REFUSED in damage), None)
        if refused:
            return refused
        if self.in_flight:
            return f"Batch {self.in_flight.batch_id} is planned and not committed: a restart runs it again"
        if self.owes_a_batch:
            return f"Batch {self.batches[-1].batch_id} moved the watermark: the next batch emits the final windows"
        if self.batches:
            return f"Every batch up to {self.batches[-1].batch_id} is committed: a restart repeats none"
        return "No batch is planned yet: a restart reads from the beginning"

    def up_to(self, batch_id: int) -> Checkpoint:
        """Return the checkpoint without the batches after `batch_id`."""
        return replace(self, batches=tuple(batch for batch in self.batches if batch.batch_id <= batch_id))

    def table(self) -> pandas.DataFrame:
        """Return one row per batch: status, offset ranges and their size, times in UTC, state partitions written."""
        return _table_of(self)

    def _repr_html_(self) -> str:
        notes = "".join(f"<p>{escape(note)}</p>" for note in (self.summary, *self.damage[1:]))
        return notes + self.table().to_html(na_rep="–")


def read_checkpoint(path: str | Path) -> Checkpoint:
    """Read a checkpoint directory. Files that cannot be read are named in `damage`; the others are still read.

    Raises CheckpointError if there is no checkpoint, or if its log version is not known.
    """
    directory = checkpoint_directory(path)
    damage: dict[str, str] = {}

    def read(reader: Callable[[Path], Any], name: str, effect: str) -> Any:
        try:
            return reader(directory / name)
        except FileNotFoundError:
            damage[name] = f"{name} is missing. {effect}"
        except Torn as error:
            damage[name] = f"{name} {error}. {effect}"

    planned, done = log_files(directory / "offsets"), log_files(directory / "commits")
    # A running query deletes old files, first a batch's plan and then its commit: ignore commits without a plan.
    first, last = min(planned or done, default=0), max(planned | done, default=-1)
    query_id = read(read_query_id, "metadata", NO_ID)
    plans = {n: read(read_plan, f"offsets/{n}", UNREAD if n < last - 1 else NO_PLAN) for n in range(first, last + 1)}
    last_done = max(done, default=-1)
    commits = {
        n: read(read_commit, f"commits/{n}", NO_COMMIT if n == last_done else UNREAD if n in done else NOT_LAST)
        for n in plans
        if n in done or n < last
    }
    of_kafka = first == 0 and any(plan.end for plan in plans.values() if plan)
    start = read(read_first_offsets, "sources", "Spark reads it for batch 0 only") if of_kafka else None
    state = state_files(directory / "state")
    batches = batches_of(plans, commits, start or {}, state, damage)
    return Checkpoint(directory, query_id, batches, state, tuple(damage.values()))


def damage(path: str | Path) -> str:
    """Return which files of a checkpoint are torn or missing, and the consequence: Spark does not name them."""
    try:
        return (*read_checkpoint(path).damage, "")[0]
    except CheckpointError:  # not on this machine, or there is none yet
        return ""


def _table_of(checkpoint: Checkpoint) -> pandas.DataFrame:
    import pandas as pd  # here, since the import is slow

    columns = ["batch", "status", "range", "offsets", "watermark", "planned at", "state"]
    rows = [
        (
            batch.batch_id,
            batch.status,
            ranges(batch),
            batch.offsets,
            pd.to_datetime(batch.watermark_ms or None, unit="ms", utc=True),
            pd.to_datetime(batch.planned_at_ms, unit="ms", utc=True),
            " ".join(f"{len(batch.state.get(o, ()))}/{n}" for o, n in checkpoint.partitions.items()),
        )
        for batch in checkpoint.batches
    ]
    return pd.DataFrame(rows, columns=columns).set_index("batch").astype({"offsets": "Int64"})
