"""The exactly-once Kafka sink for PySpark: one Kafka transaction per micro-batch, with a marker in it.

Use it with any streaming DataFrame that has a `value` column:

    from exactly_once_kafka import ExactlyOnceKafkaSink

    sink = ExactlyOnceKafkaSink(name="orders-eu", topic="orders", bootstrap_servers="127.0.0.1:9092")
    query = (
        results.writeStream.option("checkpointLocation", "/var/lib/orders-eu")
        .foreachBatch(sink)
        .trigger(processingTime="5 seconds")
        .start()
    )

Guarantee: however often the query crashes and restarts from its checkpoint, each micro-batch's rows are
visible to `isolation.level=read_committed` consumers exactly once, all together or not at all. If a replay
computes other rows than the first run did, still only one version is ever visible.

The marker says which batch came last and what was planned to be in it. It is a record in a compacted topic, so it
does not expire: a query may rest as long as it likes.

Where it stops: consumers must read with read_committed; the checkpoint must survive; the source must still
hold the offsets being replayed; results and marker live in one cluster. Where the marker and the checkpoint do not
fit, the sink refuses rather than guesses. Spark Connect is not supported: the sink runs in the driver's process.
"""

from __future__ import annotations

import collections
import contextlib
import functools
import threading
import uuid
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, cast

from confluent_kafka import KafkaException, Producer
from py4j.protocol import Py4JJavaError
from pyspark.sql import DataFrame

from exactly_once_kafka.batch import Batch, BatchSink, Marker, Unfit
from exactly_once_kafka.beginning import begin
from exactly_once_kafka.errors import (
    BatchFailed,
    Incomplete,
    SinkRefused,
    Undecidable,
    failure,
    is_login_refused,
    is_topic_missing,
    undecided,
)
from exactly_once_kafka.executors.next_batch import NextBatch
from exactly_once_kafka.kafka_rows import KafkaBatches, check_columns
from exactly_once_kafka.marker import MarkerStore
from exactly_once_kafka.marker_topic import Forgetful, topic_for
from exactly_once_kafka.names import check_topic
from exactly_once_kafka.options import BLIND, LOGGER, producer_settings
from exactly_once_kafka.patience import Patience, QueryStopped
from exactly_once_kafka.points import Points, pass_by
from exactly_once_kafka.producer import PendingProducer, aborting_on_failure
from exactly_once_kafka.query import RunningQuery
from exactly_once_kafka.tokens import by_token, forget_refused
from exactly_once_kafka.transaction import ByDriver, Transaction

if TYPE_CHECKING:
    from exactly_once_kafka.executors.left_open import LeftOpen
    from exactly_once_kafka.executors.shared_transaction import LentEpoch, SharedTransaction

WRITERS = ("driver", "executors")


class ExactlyOnceKafkaSink(BatchSink):
    """A foreachBatch function that publishes each micro-batch exactly once.

    `name` identifies the sink for good: it is the transactional id and the marker's key, so no two queries
    may share it and no restart may change it. Hand every batch over, also one without rows, and all its rows at once,
    to one sink of the name; threads that hand it over at once take turns.
    `topic` is where rows go; without it each row's `topic` column says. Rows may have the columns of Spark's own Kafka
    writer: `value` (string or binary), and optionally `key`, `headers`, `partition`, `topic`.

    `marker_topic` holds the marker, by default in a topic of the sink's own, NAME-marker. The sink creates it, and
    refuses one that is not compacted. Sinks may share one, and then wait for each other's open transactions.

    `writers` says who writes the rows: the "executors", each its own, in one transaction; or the "driver", through
    which all pass then. Executors need Kafka 4.0 or later, this library in their Python, and Spark without speculation;
    otherwise the driver writes all the same, and a warning is logged. It also writes what is likely to be small, for
    that is faster: a batch if those before had at most `driver_rows` and 64 MB, the first of a run up to 2,000 rows.

    `points` is called at each of the FAULT_POINTS. `options` are producer settings by librdkafka's names, with `_`
    for `.`: transaction_timeout_ms=60_000, security_protocol="SASL_SSL", sasl_username=…. With `batch_headers`,
    every record also carries the headers `batch_id` and `attempt`, and the last one of an attempt `batch_rows`, the
    number of its rows: an auditor can check them. Each task on an executor makes an attempt of its own.

    Raises, inside the query: SinkRefused where going on could lose or double rows, a row cannot be a record, or Kafka
    would refuse again until something is changed; BatchFailed where the batch failed and a restart of the query will
    repeat it. ValueError when it is made, for a name or an option that cannot be used.
    """

    causes = (
        "the checkpoint was deleted, or an older copy of it restored; another query uses the name; the marker's topic "
        "was deleted; a batch was not handed over, as one without rows must be, too; or Spark repartitioned the "
        "query's state"
    )

    def __init__(
        self,
        name: str,
        topic: str | None = None,
        *,
        bootstrap_servers: str,
        marker_topic: str | None = None,
        batch_headers: bool = True,
        writers: str = "executors",
        driver_rows: int = 20_000,
        points: Points = pass_by,
        **options: Any,
    ):
        super().__init__(name, points)
        if topic is not None:
            check_topic("topic", topic)
        if writers not in WRITERS:
            raise ValueError(f"writers is {writers!r}: {' or '.join(map(repr, WRITERS))} can write the rows")
        self.topic, self._batch_headers = topic, batch_headers
        self.writers, self.driver_rows = writers, driver_rows
        self._settings = producer_settings(name, bootstrap_servers, options)
        self._timeout = float(self._settings["transaction.timeout.ms"]) / 1000
        self._store = MarkerStore(
            name, topic_for(name, marker_topic), bootstrap_servers, self._settings, old_topic=topic or marker_topic
        )
        self._left_open = self._find_left_open()
        self._coordinator = self._left_open.coordinator if self._left_open and self.writers == "executors" else None
        self._next_batch = NextBatch(driver_rows)
        self._pending: PendingProducer | LentEpoch | None = None
        self._calls, self._entrance = 0, threading.Lock()
        where = f"topic {topic!r}" if topic else "the topic that each row names"
        self.goes_to = f"{where} at {bootstrap_servers}, with its marker in {self._store.topic.name!r}"
        self.to_do = (
            "restore the checkpoint; or give a new query a new name; or, knowing which batch of this checkpoint the "
            f"topic holds last: python -m exactly_once_kafka adopt {name} (its --help says how)"
        )

    def __call__(self, rows: DataFrame, batch_id: int) -> None:
        check_columns(rows, self.topic)
        with self._at_work(), self._busy, contextlib.closing(KafkaBatches(rows, self.topic)) as batches:
            try:
                if self._pending is not None and self._pending.few_rows:
                    batches.begin()  # Spark computes while it is found out which batch this is
                batch = self.batch_of(rows, batch_id)
                with self.turn(batch, rows):
                    self._publish(batches, batch)
            except Exception:
                self._forget_what_was_learnt()
                raise

    def place(self) -> tuple[str, ...]:
        """Return the name: it is one in all clusters, for the note in the checkpoint is found by it."""
        return "Kafka", self.name

    def _publish(self, rows: KafkaBatches, batch: Batch) -> None:
        batch_id = batch.batch_id
        patience = Patience(self._timeout, batch.stopped)
        pending, self._pending, transaction = self._pending, None, None
        try:
            # Before an epoch is taken, look: a query that will be refused, or that finds its batch done, must not
            # fence the one that owns the name.
            done = False
            if pending is None or not pending.promising or self.is_overtaken:
                if pending is not None:
                    pending.give_up()
                pending = None
                done = self._decide_without_epoch(batch, patience)
                self._choose_writers(rows.rows, patience)
            if not done:
                # Step 1. A producer with an epoch of its own. Getting the epoch fences every older producer of this
                # name and ends what it left open; a delayed EndTxn of an earlier batch can then do no harm.
                pending = pending or self._new_epoch()
                transaction = self._transaction(pending.take(patience))
                # Step 2. Only now read the marker: from here on, nobody else can change it.
                marker = transaction.known or self._store.read(patience.anew())
                # Step 3. Decide. A batch that is done is still executed, to nowhere: Spark's state must move on.
                done = self.decide(marker, batch)
            if done or transaction is None:
                self.may_be_done()
                self._drain(rows)
                self._pending = pending  # nothing was published under this epoch: it will do for the next batch
            else:
                # Step 4. Rows and marker in one transaction.
                self.points("before_write", batch_id)
                transaction.begin(Marker.of(batch))
                with aborting_on_failure(transaction.abort):
                    middle = functools.partial(self.points, "mid_transaction", batch_id)
                    with self.refusing_rows(batch):
                        transaction.write(rows, self._tags(batch_id), patience, middle)
                    transaction.mark(patience)
                    self.points("before_commit", batch_id)
                self.may_be_done()
                transaction.commit(patience)
                self.points("after_commit", batch_id)
                # For the next batch, while Spark computes it: an epoch may take half a second to get.
                self._pending = self._new_epoch(retire=transaction)
        except (KafkaException, TimeoutError, Incomplete) as error:
            # Step 5. Whatever is in doubt is left to the replay of the batch, which starts at step 1.
            again = self._forget_refused_token(error)
            if self._has_lost_its_marker(error, patience):
                gone = f"the marker's topic {self._store.topic.name!r} was deleted while the query ran"
                raise self.refusal(batch, gone) from error
            raise failure(error, self.name, batch_id, patience.elapsed, self._timeout, by_token=again) from error
        except QueryStopped as stopped:
            raise BatchFailed(
                f"sink {self.name!r}, batch {batch_id}: the query was stopped while the sink waited for Kafka. "
                "Restart the query: the batch is repeated and published once"
            ) from stopped
        except Undecidable as error:
            said = undecided(error, "other rows of their attempt (the header of that name, up to the dot)")
            raise SinkRefused(f"sink {self.name!r} refuses batch {batch_id}: {said}") from error
        except Forgetful as unsafe:
            raise SinkRefused(f"sink {self.name!r} refuses batch {batch_id}: {unsafe}") from unsafe
        self.points("before_checkpoint", batch_id)

    def give_up(self) -> None:
        if pending := self._pending:
            pending.give_up()

    def rest(self) -> None:
        """Let go of clients and connections, unless a batch is being published."""
        with self._entrance:
            if self._calls == 0 and self.has_ended:
                self.give_up()
                self._pending = None
                self.forget_handed_over()
                self._store.rest()
                if self._left_open is not None:
                    self._left_open.rest()

    def _forget_refused_token(self, error: Exception) -> bool:
        """Have another login token asked for if Kafka refused this one. Tell whether the sink logs in with tokens."""
        if is_login_refused(error):
            forget_refused(self._settings)
            self._store.rest()  # its clients would go on with the old one
        return by_token(self._settings)

    def _has_lost_its_marker(self, error: Exception, patience: Patience) -> bool:
        """Tell whether a topic is missing, and it is the marker's."""
        if not is_topic_missing(error):
            return False
        with contextlib.suppress(KafkaException, TimeoutError, Forgetful, QueryStopped):
            return self._store.topic.id(patience.anew()) is None
        return False

    @contextlib.contextmanager
    def _at_work(self) -> Iterator[None]:
        with self._entrance:
            self._calls += 1
        try:
            yield
        finally:
            with self._entrance:
                self._calls -= 1

    def _forget_what_was_learnt(self) -> None:
        """Begin as with a first batch: this one may have been too much for who wrote it, or the brokers have moved."""
        self._next_batch = NextBatch(self.driver_rows)
        if self._coordinator is not None:
            self._coordinator.rest()

    def _drain(self, rows: KafkaBatches) -> None:
        if rows.begun:  # not twice at once, for the sake of Spark's state
            collections.deque(rows, maxlen=0)
        else:
            self.drain(rows.rows)

    def _decide_without_epoch(self, batch: Batch, patience: Patience) -> bool:
        """Decide by what can be seen before anybody is fenced. What is not decided yet may be this batch's own past."""
        seen = self._look(batch, patience)
        try:
            return self.decide(seen, batch)
        except SinkRefused:
            if self._store.topic.id(patience) is None:
                raise
        if self._left_open is not None and self._suffices(patience):
            self._left_open.settle(patience.anew())
        return self.decide(self._store.read(patience.anew()), batch)

    def _look(self, batch: Batch, patience: Patience) -> Marker | None:
        """Return the marker as it is to be seen now, whatever is still open."""
        try:
            query = cast(RunningQuery, self._query)  # `batch_of` has set it
            return begin(self._store, batch, lambda: query.witness(self.name), patience)
        except Unfit as unfit:
            raise self.refusal(batch, str(unfit)) from None
        except Py4JJavaError as error:
            why = str(error.java_exception).splitlines()[0]
            raise BatchFailed(
                f"sink {self.name!r}, batch {batch.batch_id}: the checkpoint cannot be read or written: {why}"
            ) from error

    def _choose_writers(self, rows: DataFrame, patience: Patience) -> None:
        """Let the driver write after all, and say so, if this Kafka or this Spark cannot have executors do it."""
        suffices = self._suffices(patience)
        if self._coordinator is None:
            return
        if rows.sparkSession.sparkContext.getConf().get("spark.speculation", "false").lower() == "true":
            why = "spark.speculation is on, and would run tasks twice that write"
        elif not suffices:
            why = "this Kafka has no transaction.version 2"
        else:
            return
        self._let_driver_write(why)

    def _suffices(self, patience: Patience) -> bool:
        """Tell whether the cluster gives the next epoch with the end of each transaction.

        Most that do not are older than what leaves rows open, and there is no looking for them.
        """
        if self._left_open is None:
            return False
        try:
            if self._left_open.suffices(patience.anew()):
                return True
        except KafkaException as error:
            if self._coordinator is not None:
                raise
            LOGGER.warning(BLIND, self.name, error)
        self._left_open = None
        return False

    def _let_driver_write(self, why: str) -> None:
        LOGGER.warning("sink %r: the driver writes, since %s", self.name, why)
        self._coordinator, self.writers = None, "driver"

    def _find_left_open(self) -> LeftOpen | None:
        """Return who looks for what Kafka left open, with the connection that executors would have; None without it."""
        # Imported here, because it takes a while, and who imports the sink may have other plans.
        from exactly_once_kafka.executors.encoding import Encoding, encoding_of
        from exactly_once_kafka.executors.left_open import left_open_of

        encoding = Encoding()
        try:
            if self.writers == "executors":
                encoding = encoding_of(self._settings)
        except ValueError as error:
            self._let_driver_write(str(error))
        try:
            return left_open_of(self.name, self._settings, encoding, self._store.topic.name, self.topic)
        except ValueError as error:
            if self.writers == "executors":
                self._let_driver_write(str(error))
            LOGGER.warning(BLIND, self.name, error)
            return None

    def _new_epoch(self, retire: Transaction | None = None) -> PendingProducer | LentEpoch:
        if self._coordinator is None:
            return PendingProducer(self._settings, retire, self._before_epoch(retire))
        from exactly_once_kafka.executors.shared_transaction import LentEpoch, SharedTransaction

        last = retire if isinstance(retire, SharedTransaction) else None
        return LentEpoch(cast("LeftOpen", self._left_open), self._next_batch, last)

    def _before_epoch(self, retire: Transaction | None) -> Callable[[Patience], object]:
        """Return what is to be done before librdkafka takes an epoch, which would have Kafka forget how the last ended.

        It would also end what is still open, and could not tell whether all of it has ended.
        """
        if self._left_open is None:
            return lambda _: None
        return functools.partial(self._left_open.settle, abort=retire is None)

    def _transaction(self, producer: Producer | SharedTransaction) -> Transaction:
        return producer if isinstance(producer, Transaction) else ByDriver(producer, self._store)

    def _tags(self, batch_id: int) -> list[tuple[str, str]]:
        return [("batch_id", str(batch_id)), ("attempt", uuid.uuid4().hex[:8])] if self._batch_headers else []
