"""What every sink that publishes each batch exactly once has in common, wherever it publishes.

A sink keeps a marker next to the results, written in the same transaction: which batch came last. It reads the marker,
decides, and then either drains the batch, which is done, or writes it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field

from pyspark.sql import DataFrame

from exactly_once_kafka.errors import SinkRefused
from exactly_once_kafka.plan import shown
from exactly_once_kafka.points import Points, pass_by
from exactly_once_kafka.query import NoQuery, RunningQuery, run_of
from exactly_once_kafka.resting import begins

# What may stand for a plan in a marker.
ADOPTED = "adopted"  # the batch counts as done because an operator said so
REAL_TIME = '"real-time"'  # it is a RealTimeKafkaSink's, and says which query the name belongs to; of batches nothing


@dataclass(frozen=True)
class Batch:
    """Batch `batch_id` of the query `query_id`: what Spark planned to be in it, and in the batch before."""

    query_id: str
    batch_id: int
    plan: str
    previous_plan: str | None = None  # None for batch 0
    stopped: Callable[[], bool] = field(default=lambda: False, compare=False, repr=False)
    run: str = field(default="", compare=False)  # of the query; "" for a batch that is made by hand


@dataclass(frozen=True)
class Marker:
    """This batch was the last to be committed. `plan` is ADOPTED, REAL_TIME, or None if an older version wrote it."""

    batch_id: int
    query_id: str
    plan: str | None = None

    @classmethod
    def of(cls, batch: Batch) -> Marker:
        return cls(batch.batch_id, batch.query_id, batch.plan)


class Unfit(ValueError):
    """Marker and batch do not follow one another; the message says what was found."""


def is_done(marker: Marker | None, batch: Batch) -> bool:
    """Tell whether the batch was committed before. Raises Unfit where that batch must not be written either.

    No marker means that nothing was ever committed: whoever reads it must have made sure of that.
    """
    if marker is None:
        if batch.batch_id == 0:
            return False
        raise Unfit("no marker: nothing was ever committed under this name, or its marker was deleted")
    if marker.query_id != batch.query_id:
        raise Unfit(f"batch {marker.batch_id} was committed by another query ({marker.query_id})")
    if marker.plan == REAL_TIME:
        raise Unfit("the name is that of a RealTimeKafkaSink, whose markers say nothing of batches")
    if marker.batch_id == batch.batch_id:
        if marker.plan in (batch.plan, ADOPTED):
            return True
        if marker.plan is None:
            raise Unfit(
                f"a batch {batch.batch_id} was committed by an older version of this sink, which did not note its "
                "plan: whether it is this batch cannot be told"
            )
        raise Unfit(_other_plan(batch.batch_id, marker.plan, "is planned now", batch.plan))
    if marker.batch_id == batch.batch_id - 1:
        if marker.plan in (batch.previous_plan, ADOPTED, None):
            return False
        raise Unfit(_other_plan(marker.batch_id, marker.plan, "is in the checkpoint", batch.previous_plan))
    raise Unfit(f"the last batch committed is {marker.batch_id}")


def _other_plan(batch_id: int, committed: str | None, how: str, planned: str | None) -> str:
    return (
        f"another batch {batch_id} was committed than the one that {how}\n"
        f"            committed: {shown(committed, planned)}\n"
        f"            this one:  {shown(planned, committed)}"
    )


class BatchSink(ABC):
    """A foreachBatch function that publishes each micro-batch exactly once: decide, then drain or write.

    `points` is called at each of the FAULT_POINTS, with its name and the batch id. `causes` and `to_do` are what an
    operator is told when a batch is refused.
    """

    causes = (
        "the checkpoint was deleted, or an older copy of it restored; another query publishes here; or a batch was "
        "not handed over, as one without rows must be, too"
    )
    to_do = "restore checkpoint and results to the same moment, or give a new query a new place"

    def __init__(self, name: str, points: Points = pass_by):
        self.name, self.points = name, points
        self._query: RunningQuery | None = None

    @abstractmethod
    def __call__(self, rows: DataFrame, batch_id: int) -> None:
        """Publish the batch, unless it is published. Raises SinkRefused, BatchFailed."""

    def decide(self, marker: Marker | None, batch: Batch) -> bool:
        """Tell whether the batch is done: then it is drained, and otherwise written. Raises SinkRefused.

        A course may override it, to show what it is for.
        """
        try:
            return is_done(marker, batch)
        except Unfit as unfit:
            raise self.refusal(batch, str(unfit)) from None

    def drain(self, rows: DataFrame) -> None:
        """Execute a batch that is done, to nowhere: Spark's state must move on all the same."""
        rows.write.format("noop").mode("overwrite").save()

    def batch_of(self, rows: DataFrame, batch_id: int) -> Batch:
        """Return which batch it is that Spark hands over. Raises SinkRefused where that cannot be told."""
        try:
            run = run_of(rows)
            if self._query is None or (self._query.id, self._query.run) != run:
                self._query = RunningQuery(rows)
                begins(self)
            query = self._query
            previous = query.plan(batch_id - 1) if batch_id else None
            return Batch(query.id, batch_id, query.plan(batch_id), previous, query.stopped, query.run)
        except NoQuery as error:
            raise SinkRefused(f"sink {self.name!r} refuses batch {batch_id}: {error}") from error

    @property
    def has_ended(self) -> bool:
        """Tell whether the query that used the sink last has ended."""
        try:
            return self._query is not None and self._query.stopped()
        except Exception:  # with its Spark, too
            return True

    def give_up(self) -> None:  # noqa: B027  a sink need not ask for anything
        """Ask Kafka for nothing more, now that the query has ended: a late epoch would fence a successor's."""

    def rest(self) -> None:  # noqa: B027  a sink need not hold anything
        """Let go of what the sink holds for the next batch, now that there is none; what it needs, it gets anew."""

    def refusal(self, batch: Batch, found: str) -> SinkRefused:
        """Return the error that says what was found, what was expected, and what to do."""
        follows = batch.batch_id - 1 if batch.batch_id else "none"
        return SinkRefused(
            f"sink {self.name!r} refuses batch {batch.batch_id} of query {batch.query_id}.\n"
            f"  found:    {found}\n"
            f"  expected: batch {follows} of this query, or this batch itself\n"
            f"  causes:   {self.causes}\n"
            f"  to do:    {self.to_do}"
        )
