"""What every sink that publishes each batch exactly once has in common, wherever it publishes.

A sink keeps a marker next to the results, written in the same transaction: which batch came last. It reads the marker,
decides, and then either drains the batch, which is done, or writes it.

What every sink promises is therefore here: a batch is one batch, all of it, at one place, by one thread at a time; and
what cannot be told for sure is refused. tests/sink/test_contract.py holds every sink to it.
"""

from __future__ import annotations

import contextlib
import pickle
import threading
import weakref
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import ClassVar, NoReturn

from pyspark.sql import DataFrame

from exactly_once_kafka.errors import RowRefused, SinkRefused
from exactly_once_kafka.handed_over import HandedOver
from exactly_once_kafka.names import check_name
from exactly_once_kafka.plan import goes_back, is_copy, shown, without_time
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
        if marker.plan in (None, without_time(batch.plan)):
            raise Unfit(
                f"a batch {batch.batch_id} was committed by an older version of this sink, which did not note "
                f"{'its plan' if marker.plan is None else 'when it was planned'}: whether it is this batch cannot be "
                "told"
            )
        raise Unfit(_other_plan(batch.batch_id, marker.plan, "is planned now", batch.plan))
    last = batch.batch_id - 1
    if marker.batch_id == last:
        if marker.plan in (batch.previous_plan, without_time(batch.previous_plan), ADOPTED, None):
            return False
        raise Unfit(_other_plan(last, marker.plan, "is in the checkpoint", batch.previous_plan))
    if marker.batch_id < last and is_copy(batch.previous_plan, marker.plan):
        return False  # Spark has repartitioned the state, and nothing was read in between
    found = f"the last batch committed is {marker.batch_id}"
    if marker.batch_id < last and goes_back(batch.previous_plan, marker.plan):
        raise Unfit(
            f"{found}, and batch {last} of the checkpoint goes back to before it, as when Spark repartitions the state "
            f"of a query whose last batch it has not noted: the rows of batch {marker.batch_id} would come again\n"
            f"{_both(marker.plan, f'batch {last}:', batch.previous_plan)}"
        )
    if marker.batch_id < last:
        found += f", and batch {last} of the checkpoint was not handed over, or its rows were not committed"
    raise Unfit(found)


def _other_plan(batch_id: int, committed: str | None, how: str, planned: str | None) -> str:
    return f"another batch {batch_id} was committed than the one that {how}\n{_both(committed, 'this one:', planned)}"


def _both(committed: str | None, other: str, planned: str | None) -> str:
    return f"{' ':12}committed: {shown(committed, planned)}\n{' ':12}{other:10} {shown(planned, committed)}"


class BatchSink(ABC):
    """A foreachBatch function that publishes each micro-batch exactly once: decide, then drain or write.

    `points` is called at each of the FAULT_POINTS, with its name and the batch id. `causes` and `to_do` are what an
    operator is told when a batch is refused. Whoever makes a sink of it publishes within `turn`, and calls
    `may_be_done` right before the commit, or the drain.
    """

    causes = (
        "the checkpoint was deleted, or an older copy of it restored; another query publishes here; a batch was not "
        "handed over, as one without rows must be, too; or Spark repartitioned the query's state"
    )
    to_do = "restore checkpoint and results to the same moment, or give a new query a new place"

    goes_to = ""  # where the rows go, as a message says it; sinks of one name may not differ in it

    # By run and place: what was handed over last, to any sink of this process, and whose turn it is.
    _handed_over: ClassVar[dict[tuple[str, ...], HandedOver]] = {}
    _turns: ClassVar[weakref.WeakValueDictionary[tuple[str, ...], threading.RLock]] = weakref.WeakValueDictionary()
    _turns_lock: ClassVar[threading.Lock] = threading.Lock()

    def __init__(self, name: str, points: Points = pass_by):
        self.check_name(name)
        self.name, self.points = name, points
        self._query: RunningQuery | None = None
        self._busy = threading.RLock()  # while a batch is with this sink
        self._under_way: HandedOver | None = None
        self._last: HandedOver | None = None  # that this sink noted itself
        self._place: tuple[str, ...] | None = None

    @staticmethod
    def check_name(name: object) -> None:
        """Raise ValueError if the name cannot be used."""
        check_name(name)

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

    def place(self) -> tuple[str, ...]:
        """Return what tells the place of the marker from all others."""
        return type(self).__name__, self.name

    @contextlib.contextmanager
    def turn(self, batch: Batch, rows: DataFrame) -> Iterator[None]:
        """Publish the batch within the block: no other thread does the same meanwhile, nor with another sink.

        Raises SinkRefused if the batch was handed over before with other rows, or to go elsewhere.
        """
        if not batch.run:  # it is made by hand
            yield
            return
        with self._busy:
            place = batch.query_id, batch.run, *self.place()
            if place != self._place:
                self.forget_handed_over()
            self._place = place
            with self._turns_lock:
                turn = self._turns.setdefault(self._place, threading.RLock())
            with turn:
                now, last = HandedOver(batch, rows, self.goes_to), self._handed_over.get(self._place)
                if last is not None:
                    self._refuse_unless_same(last, now)
                outer, self._under_way = self._under_way, now
                try:
                    yield
                finally:
                    self._under_way = outer

    def may_be_done(self) -> None:
        """Note that from now on the batch may be published, or its marker count: a sink says so before it commits.

        Before, a batch that failed may be handed over again with other rows; from here on, they would be lost.
        """
        if self._under_way is not None and self._place is not None:
            self._handed_over[self._place] = self._last = self._under_way

    @contextlib.contextmanager
    def refusing_rows(self, batch: Batch) -> Iterator[None]:
        """Raise RowRefused for a ValueError within the block, which says what is wrong with a row."""
        try:
            yield
        except RowRefused:
            raise
        except ValueError as error:
            raise RowRefused(
                f"sink {self.name!r} refuses batch {batch.batch_id}: {error}. Nothing of the batch is published, and a "
                "restart alone will not help: mend or filter such rows in the query, and restart it; the batch is "
                "repeated then, and published once"
            ) from error

    def forget_handed_over(self) -> None:
        """Let go of the rows that were handed over last, now that their run has ended."""
        if self._place is not None:
            self._handed_over.pop(self._place, None)
        self._last = None

    @property
    def is_overtaken(self) -> bool:
        """Tell whether another sink of the name has been handed a batch since: what was prepared is of no use then."""
        return self._place is not None and self._handed_over.get(self._place) is not self._last

    def _refuse_unless_same(self, last: HandedOver, now: HandedOver) -> None:
        refuses = f"sink {self.name!r} refuses batch {now.batch.batch_id} of query {now.batch.query_id}: "
        if last.goes_elsewhere(now):
            raise SinkRefused(
                f"{refuses}a sink of the same name was handed it before, for {last.goes_to}; this one is for "
                f"{now.goes_to}. The marker of that name says that the batch is done, so that it would be missing "
                "here. Give each sink a name of its own, and the query a new checkpoint: a new name begins with batch 0"
            )
        if last.is_other_part(now):
            raise SinkRefused(
                f"{refuses}other rows of it were handed over before. Hand over all rows of a batch at once, as a "
                "union; or use sinks of different names. For this batch it is too late: its marker came with the first "
                "rows that were ever handed over, and says that it is done. The others are published by no restart, "
                "nor by a query that was mended"
            )

    def __reduce__(self) -> NoReturn:
        raise pickle.PicklingError(
            f"sink {self.name!r} cannot be sent to another process: it works in the driver's. Spark Connect sends "
            "foreachBatch functions to its server, and is not supported: run the query in a classic session "
            "(SparkSession.builder.master(…)), in the program that is the driver"
        )

    @property
    def has_ended(self) -> bool:
        """Tell whether the query that used the sink last has ended."""
        try:
            return self._query is not None and self._query.stopped()
        except Exception:  # with its Spark, too
            return True

    def give_up(self) -> None:  # noqa: B027  a sink need not ask for anything
        """Ask Kafka for nothing more, now that the query has ended: a late epoch would fence a successor's."""

    def rest(self) -> None:
        """Let go of what the sink holds for the next batch, now that there is none; what it needs, it gets anew."""
        if self.has_ended:
            self.forget_handed_over()

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
