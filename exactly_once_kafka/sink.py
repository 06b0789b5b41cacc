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

Limitations: consumers must read with read_committed; the checkpoint must survive; the source must still hold the
offsets being replayed; results and marker must be in one cluster. If the marker and the checkpoint do not match, the
sink refuses the batch. Spark Connect is not supported: the sink runs in the driver's process.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from confluent_kafka import KafkaException
from pyspark.sql import DataFrame, SparkSession

from exactly_once_kafka.batch_sink import BatchSink
from exactly_once_kafka.deadline import Deadline, QueryStopped
from exactly_once_kafka.errors import (
    BatchFailed,
    IncompleteWrite,
    OutcomeUnknown,
    SinkRefused,
    failure,
    is_login_refused,
    is_topic_missing,
    undecided,
)
from exactly_once_kafka.kafka_rows import BatchRows, check_columns
from exactly_once_kafka.marker_store import MarkerStore
from exactly_once_kafka.marker_topic import MarkerTopicUnsafe, topic_for
from exactly_once_kafka.names import check_topic
from exactly_once_kafka.oauth_tokens import by_token, forget_refused
from exactly_once_kafka.points import Points, pass_by
from exactly_once_kafka.producer_options import CHECK_SKIPPED, LOGGER, producer_settings
from exactly_once_kafka.protocol import Batch
from exactly_once_kafka.transport import KafkaTransport

WRITERS = ("driver", "executors")


class ExactlyOnceKafkaSink(BatchSink):
    """A foreachBatch function that publishes each micro-batch exactly once.

    `name` must be unique and must never change: it is the transactional id and the marker's key. Call the sink once for
    every batch, also for a batch without rows, and pass all rows in that call. Threads that call it at the same time
    take turns.
    `topic` is where all rows go; without it, each row goes to the topic in its column `topic`. Rows may have the
    columns of Spark's own Kafka writer: `value` (string or binary), and optionally `key`, `headers`, `partition`,
    `topic`.

    `marker_topic` holds the marker, by default NAME-marker. The sink creates it, and refuses one that is not compacted.
    Sinks may share one, and then wait for each other's open transactions.

    `writers`: the "executors" write their own rows, in one transaction, or the "driver" writes all rows. Executors need
    Kafka 4.0 or later, this library in their Python, and Spark without speculation; otherwise the driver writes, and
    logs a warning. With "executors", the driver still writes small batches, because that is faster. It writes a batch
    if one of the last two batches with rows had at most `driver_rows` rows and 64 MB. It writes the first batch of a
    run if that has at most 2,000 rows, or `driver_rows` if these are fewer.

    `points` is called before and after each step, and at the FAULT_POINTS. `options` are producer settings by
    librdkafka's names, with `_` for `.`: transaction_timeout_ms=60_000, security_protocol="SASL_SSL", sasl_username=….
    With `batch_headers`, every record has the headers `batch_id` and `attempt`. The last record of an attempt also has
    `batch_rows`, the number of rows in that attempt, so that an auditor can see whether one is missing. Each task on an
    executor is an attempt of its own.

    A call raises SinkRefused if the batch could lose or duplicate rows, if a row cannot be a record, or if Kafka would
    refuse the batch again until something is changed; BatchFailed if the batch failed, and a restart of the query
    repeats it; ValueError if a column is missing or has a wrong type. The constructor raises ValueError for a name or
    an option that cannot be used.
    """

    causes = (
        "the checkpoint was deleted, or an older copy of it restored; another query uses the name; the marker's topic "
        "was deleted; the query did not call the sink for a batch, as it must even if there are no rows; or Spark "
        "repartitioned the query's state"
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
        driver_rows: int = 100_000,
        points: Points = pass_by,
        **options: Any,
    ):
        super().__init__(name, points)
        if topic is not None:
            check_topic("topic", topic)
        if writers not in WRITERS:
            raise ValueError(f"writers is {writers!r}; expected {' or '.join(map(repr, WRITERS))}")
        if type(driver_rows) is not int or driver_rows < 0:
            raise ValueError(f"driver_rows is {driver_rows!r}; expected a whole number, 0 or more")
        self.topic = topic
        self.writers, self.driver_rows = writers, driver_rows
        self._settings = producer_settings(name, bootstrap_servers, options)
        self._batch_headers = batch_headers
        self._store = MarkerStore(name, topic_for(name, marker_topic), bootstrap_servers, self._settings)
        self._transport: KafkaTransport | None = None
        where = f"topic {topic!r}" if topic else "the topic that each row names"
        self.goes_to = f"{where} at {bootstrap_servers}, with its marker in {self._store.topic.name!r}"
        self.to_do = (
            "restore the checkpoint; or give a new query a new name; or, knowing which batch of this checkpoint the "
            f"topic holds last: python -m exactly_once_kafka adopt {name} (its --help says how)"
        )

    def __call__(self, rows: DataFrame, batch_id: int) -> None:
        check_columns(rows, self.topic)
        with self._busy, contextlib.closing(BatchRows(rows, self.topic)) as data:
            try:
                if self._transport is not None:
                    self._transport.prepare(data)
                batch = self.batch_of(rows, batch_id)
                with self.turn(batch, rows), self._explaining_failures(batch) as deadline:
                    transport = self.transport_for(rows.sparkSession, deadline)
                    if not self.published_last:
                        transport.forget_epoch()
                        self._store.forget()
                    transport.start(batch, data, self.query, deadline, self.in_rows(batch))
                    self.publish(batch, transport)
            except Exception:
                if self._transport is not None:
                    self._transport.forget_what_was_learnt()
                raise

    def place(self, batch: Batch) -> tuple[str, ...]:
        """Return the name as the key. It must be unique over all clusters, since it names the checkpoint's note."""
        return "Kafka", self.name

    @property
    def transport(self) -> KafkaTransport:
        """Return the transport, which is chosen with the first batch."""
        assert self._transport is not None, "no batch has come yet"
        return self._transport

    def stop_asking(self) -> None:
        if self._transport is not None:
            self._transport.stop_asking()

    def _close(self) -> None:
        if self._transport is not None:
            self._transport.close()

    def transport_for(self, spark: SparkSession, deadline: Deadline) -> KafkaTransport:
        """Return the transport; choose it at the first call. Raises KafkaException, TimeoutError, QueryStopped."""
        if self._transport is None:
            self._transport = self._choose_transport(spark, deadline)
        return self._transport

    def _choose_transport(self, spark: SparkSession, deadline: Deadline) -> KafkaTransport:
        """Return the transport for `writers`, or the driver's if executors cannot write with this Kafka or Spark."""
        # Imported here, because it takes a while, and not every program that imports the sink uses it.
        from exactly_once_kafka.driver_transport import DriverTransport
        from exactly_once_kafka.kafka_client.open_transaction_repair import OpenTransactionRepair, repair_of
        from exactly_once_kafka.kafka_client.settings import Encoding, encoding_of

        store, by_executors = self._store, self.writers == "executors"
        store.topic.id(deadline)  # by librdkafka, whose errors say better than kafka-python's why it cannot connect
        why, encoding = "", Encoding()
        repair: OpenTransactionRepair | None = None
        if spark.sparkContext.getConf().get("spark.speculation", "false").lower() == "true":
            why = "spark.speculation is on, and would run tasks twice that write"
        try:
            encoding = encoding_of(self._settings)
        except ValueError as error:
            why = why or str(error)
        try:
            repair = repair_of(self.name, self._settings, store.topic.name, self.topic)
            if not repair.supports_txn_v2(deadline.restarted()):
                # Such a Kafka is most likely older than the bug that leaves rows open (KAFKA-20734), and than the
                # requests that find such rows.
                why, repair = why or "this Kafka has no transaction.version 2", None
        except (ValueError, KafkaException) as error:
            if isinstance(error, KafkaException) and by_executors and not why:
                raise
            LOGGER.warning(CHECK_SKIPPED, self.name, error)
            why, repair = why or str(error), None
        if by_executors and repair is not None and not why:
            from exactly_once_kafka.executors.transport import ExecutorsTransport

            return ExecutorsTransport(store, self._batch_headers, repair, encoding, self.driver_rows)
        if by_executors:
            LOGGER.warning("sink %r: the driver writes, since %s", self.name, why)
        return DriverTransport(store, self._batch_headers, self._settings, repair)

    @contextlib.contextmanager
    def _explaining_failures(self, batch: Batch) -> Iterator[Deadline]:
        """Yield a deadline of the transaction's timeout, and turn errors in the block into SinkRefused or BatchFailed.

        If it is unknown whether the batch is published, the repeated batch finds that out by the marker.
        """
        timeout = float(self._settings["transaction.timeout.ms"]) / 1000
        deadline = Deadline(timeout, self.query.stopped)
        try:
            yield deadline
        except (KafkaException, TimeoutError, IncompleteWrite) as error:
            again = self._forget_refused_token(error)
            if is_topic_missing(error) and self._store.is_gone(deadline.restarted()):
                gone = f"the marker's topic {self._store.topic.name!r} was deleted while the query ran"
                raise self.refusal(batch, gone) from error
            raise failure(error, self.name, batch.batch_id, deadline.elapsed, timeout, by_token=again) from error
        except QueryStopped as stopped:
            raise BatchFailed(
                f"sink {self.name!r}, batch {batch.batch_id}: the query was stopped while the sink waited for Kafka. "
                "Restart the query: the batch is repeated and published once"
            ) from stopped
        except OutcomeUnknown as error:
            said = undecided(error, "other rows of their attempt (equal `attempt` headers up to the dot)")
            raise SinkRefused(f"sink {self.name!r} refuses batch {batch.batch_id}: {said}") from error
        except MarkerTopicUnsafe as unsafe:
            raise SinkRefused(f"sink {self.name!r} refuses batch {batch.batch_id}: {unsafe}") from unsafe

    def _forget_refused_token(self, error: Exception) -> bool:
        """Request another login token if Kafka refused this one. Tell whether the sink logs in with tokens."""
        if is_login_refused(error):
            forget_refused(self._settings)
            self._store.disconnect()  # its clients would keep using the refused token
        return by_token(self._settings)
