"""Read the checkpoint of any Spark Structured Streaming query: which batches are planned, done, or in flight.

Guarantee: it only reads, files alone, with no Spark; what it says is what Spark will find when it restarts.
Where it stops: a local path; checksums are not verified; a running query may be a step ahead of what was read;
Spark deletes the logs of batches more than `spark.sql.streaming.minBatchesToRetain` (100) ago, and the first that
is left has no start.
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
NO_PLAN = f"{REFUSED}: restore it from a copy (without it the batch is planned anew, perhaps with other offsets)"
NO_COMMIT = f"{REFUSED}: delete it, and the batch runs again"
NOT_LAST = "Spark runs only the last batch again"


@dataclass(frozen=True)
class Checkpoint:
    """What a checkpoint directory holds. `damage` names each file that cannot be read and what follows from it."""

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
        """Tell whether the last batch is committed and moved the watermark: what that made final is not emitted yet.

        It takes one more batch. A running query adds that by itself. A restarted one does not: it waits for new
        records, and with the trigger availableNow and no new records it ends without it.
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
            return f"Batch {self.batches[-1].batch_id} moved the watermark: what is final now, the next batch publishes"
        if self.batches:
            return f"Every batch up to {self.batches[-1].batch_id} is committed: a restart repeats none"
        return "No batch is planned yet: a restart begins at the beginning"

    def up_to(self, batch_id: int) -> Checkpoint:
        """Return the checkpoint without the batches after `batch_id`."""
        return replace(self, batches=tuple(batch for batch in self.batches if batch.batch_id <= batch_id))

    def table(self) -> pandas.DataFrame:
        """Return one row per batch: status, offset ranges and their size, times in UTC, state partitions written."""
        from labs.evidence.checkpoint.checkpoint_table import table_of  # pandas takes longer than all the rest

        return table_of(self)

    def _repr_html_(self) -> str:
        notes = "".join(f"<p>{escape(note)}</p>" for note in (self.summary, *self.damage[1:]))
        return notes + self.table().to_html(na_rep="–")


def read_checkpoint(path: str | Path) -> Checkpoint:
    """Read a checkpoint directory. A file in it that cannot be read is named in `damage`; the rest is still told.

    Raises CheckpointError where there is no checkpoint, or one whose log version is not known.
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
    # A running query deletes old files, first a batch's plan and then its commit: what lies before is history.
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
    """Say which file of a checkpoint is torn or missing and what follows, if one is: Spark does not name it."""
    try:
        return (*read_checkpoint(path).damage, "")[0]
    except CheckpointError:  # not on this machine, or there is none yet
        return ""
