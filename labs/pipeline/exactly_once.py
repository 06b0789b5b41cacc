"""The exactly-once Kafka sink for PySpark: one Kafka transaction per micro-batch, with a marker in it.

Use it with any streaming DataFrame that has a `value` column:

    from labs.pipeline import ExactlyOnceKafkaSink

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

Where it stops: consumers must read with read_committed; the checkpoint must survive; the source must still
hold the offsets being replayed; results and marker live in one cluster; a marker older than the broker's
`offsets.retention.minutes` (7 days) is gone, and the sink then refuses rather than guesses. Spark Connect
is not supported: the sink runs in the driver's process.
"""

from __future__ import annotations

import time
import uuid

from confluent_kafka import KafkaError, KafkaException, Producer
from pyspark.sql import DataFrame

from labs.pipeline import fault_points
from labs.pipeline.arrow_rows import arrow_batches
from labs.pipeline.fault_points import reach
from labs.pipeline.kafka_rows import check_columns, kafka_rows
from labs.pipeline.marker import Marker, MarkerStore, is_committed
from labs.pipeline.sink_errors import BatchFailed, explain
from labs.pipeline.transactional_producer import Fresh, abort, producer_settings


class ExactlyOnceKafkaSink:
    """A foreachBatch function that publishes each micro-batch exactly once.

    `name` identifies the sink for good: it is the transactional id and the marker's group, so no two queries
    may share it and no restart may change it. `topic` is where rows go; without it each row's `topic` column
    says, and `marker_topic` must name an existing topic. Rows may have the columns of Spark's own Kafka
    writer: `value` (string or binary), and optionally `key`, `headers`, `partition`, `topic`.

    `options` are producer settings by librdkafka's names, with `_` for `.`: transaction_timeout_ms=60_000,
    security_protocol="SASL_SSL", sasl_username=…. With `batch_headers`, every record also carries the headers
    `batch_id` and `attempt`, and the last one of a batch `batch_rows`: an auditor can check them.

    Raises, inside the query: SinkRefused where going on could lose or double rows, BatchFailed where the
    batch failed and a restart of the query will repeat it.
    """

    def __init__(
        self,
        name: str,
        topic: str | None = None,
        *,
        bootstrap_servers: str,
        marker_topic: str | None = None,
        batch_headers: bool = True,
        **options: str | int,
    ):
        if not (marker_topic or topic):
            raise ValueError("name a topic, or a marker_topic if each row's topic column says where it goes")
        self.name, self.topic, self._batch_headers = name, topic, batch_headers
        self._settings = producer_settings(name, bootstrap_servers, options)
        self._timeout = float(self._settings["transaction.timeout.ms"]) / 1000
        self._marker = MarkerStore(name, marker_topic or topic, bootstrap_servers, self._settings)
        self._fresh: Fresh | None = None

    def __call__(self, rows: DataFrame, batch_id: int) -> None:
        check_columns(rows, self.topic)
        query_id = rows.sparkSession.sparkContext.getLocalProperty("sql.streaming.queryId") or ""
        started = time.monotonic()
        try:
            producer = self._publish_once(rows, batch_id, query_id)
        except (KafkaException, TimeoutError) as error:
            # Step 5. Whatever is in doubt is left to the replay of the batch, which starts at step 1.
            elapsed = time.monotonic() - started
            raise BatchFailed(explain(error, self.name, batch_id, elapsed, self._timeout)) from error
        # For the next batch, while Spark computes it: an epoch may take half a second to get.
        self._fresh = Fresh(self._settings, retire=producer)
        reach("before_checkpoint", batch_id)

    def _publish_once(self, rows: DataFrame, batch_id: int, query_id: str) -> Producer:
        if self._fresh is None:
            # Look before fencing: a query that will be refused must not disturb the one that owns the name.
            self._is_committed(self._marker.read(stable=False, timeout=self._timeout), batch_id, query_id)
            self._fresh = Fresh(self._settings)

        # Step 1. A producer with an epoch of its own. Getting the epoch fences every older producer of this
        # name and ends what it left open; a delayed EndTxn of an earlier batch can then do no harm.
        fresh, self._fresh = self._fresh, None
        producer = fresh.take(self._timeout)
        # Step 2. Only now read the marker: from here on, nobody else can change it.
        marker = self._marker.read(timeout=self._timeout)
        # Step 3. Decide. A batch that is done is still executed, to nowhere: Spark's state must move on.
        if self._is_committed(marker, batch_id, query_id):
            rows.write.format("noop").mode("overwrite").save()
            return producer
        # Step 4. Rows and marker in one transaction.
        reach("before_write", batch_id)
        producer.begin_transaction()
        try:
            self._send(rows, batch_id, producer)
            self._marker.send(Marker(batch_id, query_id), producer, self._timeout)
            reach("before_commit", batch_id)
        except BaseException:
            abort(producer)
            raise
        producer.commit_transaction(self._timeout)
        reach("after_commit", batch_id)
        return producer

    def _is_committed(self, marker: Marker | None, batch_id: int, query_id: str) -> bool:
        """Tell whether the batch was committed before. Raises SinkRefused where the marker does not fit."""
        return is_committed(marker, self.name, batch_id, query_id)

    def _send(self, rows: DataFrame, batch_id: int, producer: Producer) -> None:
        """Produce every row and wait until all are acknowledged. Raises KafkaException for a row that was not."""
        failures: list[KafkaError] = []
        tags = [("batch_id", str(batch_id)), ("attempt", uuid.uuid4().hex[:8])] if self._batch_headers else []

        def failed(error, message) -> None:
            failures.append(error)

        produce, count = producer.produce, 0
        for count, row in enumerate(kafka_rows(arrow_batches(rows), self.topic, tags), start=1):
            if count == 2:
                self._reach_mid_transaction(producer, batch_id)
            topic, value, key, partition, headers = row
            while True:
                try:
                    # By position, because names would make it a third slower: on_delivery, its alias, timestamp.
                    produce(topic, value, key, partition, failed, None, 0, headers)
                    break
                except BufferError:  # the queue is full: let some of it go
                    producer.poll(1)
        deadline = time.monotonic() + self._timeout
        while (unsent := producer.flush(0.5)) and not failures and time.monotonic() < deadline:
            pass  # one failure decides the batch; the rows behind it could wait in vain until the timeout
        if failures:
            raise KafkaException(failures[0])
        if unsent:
            raise TimeoutError(f"{unsent} of {count} records were not acknowledged within {self._timeout:g} s")

    def _reach_mid_transaction(self, producer: Producer, batch_id: int) -> None:
        if fault_points.listener:
            producer.flush(self._timeout)  # so that a crash here leaves something of the transaction in Kafka
        reach("mid_transaction", batch_id)
