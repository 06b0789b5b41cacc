"""The base class of all exactly-once sinks, to Kafka or elsewhere.

A sink writes a marker in the same transaction as the results: it says which batch was published last. The sink runs the
steps of its `protocol` through a transport, which does the I/O.

Guarantee of all sinks: a batch is published as a whole, to one destination, by one thread at a time; and a batch that
cannot be identified is refused. tests/sink/test_contract.py tests every sink for this.
"""

from __future__ import annotations

import contextlib
import functools
import pickle
import threading
import weakref
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from typing import Any, ClassVar, NamedTuple, NoReturn

from py4j.protocol import Py4JError
from pyspark.sql import DataFrame

from exactly_once_kafka.deadline import seconds_to_abort
from exactly_once_kafka.errors import BatchFailed, RowRefused, SinkRefused
from exactly_once_kafka.names import check_name
from exactly_once_kafka.points import BEFORE_CHECKPOINT, MID_ROWS, Points, pass_by, point
from exactly_once_kafka.protocol import Batch, MarkerMismatch, Step, exactly_once, next_step
from exactly_once_kafka.query import CheckpointFailed, NoQuery, RunningQuery, run_of
from exactly_once_kafka.transport import Transport


class BatchSink(ABC):
    """A foreachBatch function that publishes each micro-batch exactly once, by the steps of its `protocol`.

    `points` is called at each of ALL_POINTS that a batch passes, with the point's name and the batch id. The message of
    SinkRefused has the possible `causes`, and says what `to_do`. A subclass calls `publish` within `turn`.
    """

    protocol = staticmethod(exactly_once)

    causes = (
        "the checkpoint was deleted, or an older copy of it restored; another query publishes here; the query did not "
        "call the sink for a batch, as it must even if there are no rows; or Spark repartitioned the query's state"
    )
    to_do = "restore checkpoint and results to the same moment, or give a new query a new place"

    goes_to = ""  # where the rows go, for messages; sinks of one name must have the same

    # For each query, run and place: the last batch delivered to any sink of this process, and the lock for publishing.
    _delivered: ClassVar[dict[tuple[str, ...], DeliveredBatch]] = {}
    _turns: ClassVar[weakref.WeakValueDictionary[tuple[str, ...], threading.RLock]] = weakref.WeakValueDictionary()
    _turns_lock: ClassVar[threading.Lock] = threading.Lock()

    def __init__(self, name: str, points: Points = pass_by):
        self.check_name(name)
        self.name, self.points = name, points
        self._query: RunningQuery | None = None
        self._busy = threading.RLock()  # held while this sink handles a batch
        self._under_way: DeliveredBatch | None = None
        self._last: DeliveredBatch | None = None  # the last batch that this sink put into `_delivered`
        self._place: tuple[str, ...] | None = None

    @staticmethod
    def check_name(name: object) -> None:
        """Raise ValueError if the name cannot be used."""
        check_name(name)

    @property
    def noted_as(self) -> str:
        """Return the name of the note that the sink leaves in the checkpoint."""
        return self.name

    @abstractmethod
    def __call__(self, rows: DataFrame, batch_id: int) -> None:
        """Publish the batch, unless it was published before. Raises SinkRefused, BatchFailed."""

    def publish(self, batch: Batch, transport: Transport) -> None:
        """Run the protocol for the batch, which `transport` has received before.

        Raises SinkRefused, BatchFailed, and what the transport raises.
        """
        steps, answer = self.protocol(batch, transport.has_epoch), None
        try:
            while step := next_step(steps, answer):
                answer = self._take(step, batch, transport)
        except BaseException as error:
            transport.give_up(seconds_to_abort(error))
            if isinstance(error, MarkerMismatch):
                raise self.refusal(batch, str(error)) from None
            if isinstance(error, CheckpointFailed):
                raise BatchFailed(
                    f"sink {self.name!r}, batch {batch.batch_id}: the checkpoint cannot be read or written: {error}"
                ) from error
            raise
        self.points(BEFORE_CHECKPOINT, batch.batch_id)

    def _take(self, step: Step, batch: Batch, transport: Transport) -> Any:
        """Take one step, between its two points, and return the answer."""
        self.points(point("before", step), batch.batch_id)
        if step in ("commit", "drain"):
            self.may_be_done()
        with self.refusing_rows(batch) if step == "rows" else contextlib.nullcontext():
            answer = transport.take(step)
        self.points(point("after", step), batch.batch_id)
        return answer

    def in_rows(self, batch: Batch) -> Callable[[], object]:
        """Return the function that a transport calls at MID_ROWS, when the first rows are written."""
        return functools.partial(self.points, MID_ROWS, batch.batch_id)

    def batch_of(self, rows: DataFrame, batch_id: int) -> Batch:
        """Return the batch that Spark delivers. Raises SinkRefused if its query or its plan cannot be found."""
        try:
            run = run_of(rows)
            if self._query is None or (self._query.id, self._query.run) != run:
                self._query = RunningQuery(rows, self.noted_as)
                register_sink(self)
            query = self._query
            previous = query.plan(batch_id - 1) if batch_id else None
            return Batch(query.id, batch_id, query.plan(batch_id), previous)
        except NoQuery as error:
            raise SinkRefused(f"sink {self.name!r} refuses batch {batch_id}: {error}") from error

    @property
    def query(self) -> RunningQuery:
        """Return the query of the batch that `batch_of` returned last."""
        assert self._query is not None
        return self._query

    def place(self, batch: Batch) -> tuple[str, ...]:
        """Return a key that identifies the place of the marker. Raises SinkRefused, BatchFailed."""
        return type(self).__name__, self.name

    @contextlib.contextmanager
    def turn(self, batch: Batch, rows: DataFrame) -> Iterator[None]:
        """Hold the lock of the place while the block publishes the batch. Other threads and sinks of that place wait.

        Raises SinkRefused if the batch may be published already with other rows or for another destination.
        """
        with self._busy:
            place = batch.query_id, self.query.run, *self.place(batch)
            if place != self._place:
                self.forget_delivered()
            self._place = place
            with self._turns_lock:
                turn = self._turns.setdefault(self._place, threading.RLock())
            with turn:
                now = DeliveredBatch(batch.batch_id, rows, self.goes_to)
                if (last := self._delivered.get(self._place)) is not None:
                    self._reject_split_batch(batch, last, now)
                outer, self._under_way = self._under_way, now
                try:
                    yield
                finally:
                    self._under_way = outer

    def may_be_done(self) -> None:
        """Note that the batch may be published from now on. Called before the steps `commit` and `drain`.

        Before that, a batch that failed may be delivered again with other rows. Afterwards, other rows would be lost.
        """
        if self._under_way is not None and self._place is not None:
            self._delivered[self._place] = self._last = self._under_way

    @contextlib.contextmanager
    def refusing_rows(self, batch: Batch) -> Iterator[None]:
        """Turn a ValueError in the block, which says what is wrong with a row, into RowRefused."""
        try:
            yield
        except RowRefused:
            raise
        except ValueError as error:
            raise RowRefused(
                f"sink {self.name!r} refuses batch {batch.batch_id}: {error}. Nothing of the batch is published, and a "
                "restart alone will not help: mend or filter such rows in the query, and restart it; the batch is "
                "then repeated and published once"
            ) from error

    def forget_delivered(self) -> None:
        """Forget the last batch and its rows, since its run has ended or the sink now belongs to another query."""
        if self._place is not None:
            self._delivered.pop(self._place, None)
        self._last = None

    @property
    def published_last(self) -> bool:
        """Tell whether this sink delivered the last batch of this run. Only then may it keep its epoch.

        Otherwise another sink of its name may have fenced it, or an operator may have set the marker.
        """
        return self._last is not None and self._place is not None and self._delivered.get(self._place) is self._last

    def _reject_split_batch(self, batch: Batch, last: DeliveredBatch, now: DeliveredBatch) -> None:
        if last.batch_id != now.batch_id:
            return
        refuses = f"sink {self.name!r} refuses batch {batch.batch_id} of query {batch.query_id}: "
        if last.goes_to != now.goes_to:
            raise SinkRefused(
                f"{refuses}a sink of the same name received it before, for {last.goes_to}; this one is for "
                f"{now.goes_to}. The marker of that name says that the batch is done, so the batch would be missing "
                "here. Give each sink a name of its own, and the query a new checkpoint: a new name begins with batch 0"
            )
        if last.has_other_rows_than(now):
            raise SinkRefused(
                f"{refuses}the sink received other rows of it before. Call the sink once with all rows of a batch, as "
                "a union; or use sinks of different names. The other rows of this batch cannot be recovered: its "
                "marker came with the first rows and says that the batch is done, so neither a restart nor a corrected "
                "query publishes the others"
            )

    def __reduce__(self) -> NoReturn:
        raise pickle.PicklingError(
            f"sink {self.name!r} cannot be sent to another process: it works only in the driver. Spark Connect sends "
            "foreachBatch functions to its server, and is not supported: run the query in a classic session "
            "(SparkSession.builder.master(…)), in the program that is the driver"
        )

    @property
    def has_ended(self) -> bool:
        """Tell whether the query that this sink belongs to has ended."""
        try:
            return self._query is not None and self._query.stopped()
        except Exception:  # Spark itself has ended
            return True

    def stop_asking(self) -> None:  # noqa: B027  a sink need not ask for anything
        """Cancel requests for an epoch, since the query has ended: a late epoch would fence the next run."""

    def release(self) -> None:
        """Release what the sink keeps for the next batch, if its query has ended; a later query creates it again."""
        if not self._busy.acquire(blocking=False):  # it handles a batch
            return
        try:
            if self.has_ended:
                self.forget_delivered()
                self._close()
        finally:
            self._busy.release()

    def _close(self) -> None:  # noqa: B027  a sink need not have any
        """Close clients and connections. A later batch opens new ones."""

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


class DeliveredBatch(NamedTuple):
    """A batch as one run of its query delivered it to a sink: its rows and their destination.

    A batch may be delivered twice with the same rows for the same destination. Other rows would be lost, and another
    destination would not get the batch:

        def publish(rows, batch_id):
            sink(rows.where("kind = 'a'"), batch_id)
            sink(rows.where("kind = 'b'"), batch_id)  # the marker says that the batch is done

        def publish(rows, batch_id):
            ExactlyOnceKafkaSink("orders", "raw", …)(rows, batch_id)
            ExactlyOnceKafkaSink("orders", "audit", …)(rows, batch_id)  # the marker of this name says that it is done
    """

    batch_id: int
    rows: DataFrame
    goes_to: str

    def has_other_rows_than(self, later: DeliveredBatch) -> bool:
        """Tell whether the rows of `later`, of the same batch, are computed differently."""
        if self.rows is later.rows:
            return False
        try:
            # sameSemantics ignores the names of columns: key AS value, value AS key would count as the same.
            return self.rows.columns != later.rows.columns or not self.rows.sameSemantics(later.rows)
        except Py4JError:
            return True


# Spark keeps a foreachBatch function until the JVM's garbage collector frees its query. Until then, a process that runs
# one query after the other would keep the Kafka clients of all of them, and each client polls Kafka.
_in_use: weakref.WeakSet[BatchSink] = weakref.WeakSet()
_in_use_lock = threading.Lock()


def register_sink(sink: BatchSink) -> None:
    """Note that a query begins to use the sink, and release the clients of sinks whose queries have ended."""
    with _in_use_lock:
        others = [each for each in _in_use if each is not sink]
        _in_use.add(sink)
    ended = [each for each in others if each.has_ended]
    with _in_use_lock:
        _in_use.difference_update(ended)
    for each in ended:
        each.stop_asking()
    if ended:  # in a thread, since closing a connection takes time
        threading.Thread(target=_release, args=(ended,), name="clients-of-ended-queries", daemon=True).start()


def _release(sinks: list[BatchSink]) -> None:
    for each in sinks:
        each.release()
