"""One Kafka transaction that the executors write and the driver marks and ends.

The driver gets a producer id and an epoch, and lends both to the tasks; no client library can adopt them, so the record
batches are made here. A Kafka with transaction version 2 gives the next epoch with the end of each transaction
(KIP-890): what comes late from a task, or from the end of an earlier transaction, has an old epoch and is turned away.

Guarantee: the driver marks and commits only when each task ran once, wrote to partitions that no other task wrote to,
and has had every one of its rows acknowledged. Where it stops: Kafka 4.0 and later, with transaction version 2.
"""

from __future__ import annotations

import contextlib
import random
import time
from collections.abc import Callable, Iterator
from typing import Any

import pyarrow
from confluent_kafka import KafkaError, KafkaException
from kafka.errors import BrokerResponseError
from kafka.protocol.producer.transaction import EndTxnRequest, InitProducerIdRequest
from pyspark.sql import DataFrame
from pyspark.sql.functions import expr

from exactly_once_kafka.batch import Marker
from exactly_once_kafka.cluster import Cluster
from exactly_once_kafka.errors import BatchFailed
from exactly_once_kafka.kafka_rows import Tags, as_bytes
from exactly_once_kafka.marker import value_of
from exactly_once_kafka.partition_writer import PartitionWriter, Piece
from exactly_once_kafka.patience import SLICE, Patience
from exactly_once_kafka.placing import handed_out, writers_of
from exactly_once_kafka.producer import TOO_OLD
from exactly_once_kafka.record_batch import ProducerId, encode
from exactly_once_kafka.transaction import Transaction
from exactly_once_kafka.write_task import AGAIN, THREAD, THREAD_OF_FIRST_ROW, Report, WriteTask, reports

NEXT_EPOCH = 5  # version of EndTxn from which it gives the next epoch
FENCING = 5  # version of InitProducerId
NEEDED = 2  # transaction.version


class Coordinator:
    """Begins and ends the transactions of one transactional id. Raises KafkaException, TimeoutError, QueryStopped."""

    def __init__(self, name: str, connection: dict[str, Any], marker_topic: str, timeout_ms: int):
        self.name, self.connection, self.marker_topic = name, connection, marker_topic
        self._timeout_ms, self._cluster = timeout_ms, Cluster(connection)

    def suffices(self, patience: Patience) -> bool:
        """Tell whether the cluster gives the next epoch with the end of each transaction."""
        with _as_client_errors():
            return self._cluster.transaction_version(patience) >= NEEDED

    def fence(self, patience: Patience) -> ProducerId:
        """Get a new epoch, which ends what older ones left open."""
        request = InitProducerIdRequest(
            version=FENCING,
            transactional_id=self.name,
            transaction_timeout_ms=self._timeout_ms,
            producer_id=-1,
            producer_epoch=-1,
        )
        with _as_client_errors():
            answer = self._cluster.ask_coordinator(self.name, request, patience)
        return ProducerId(answer.producer_id, answer.producer_epoch)

    def end(self, producer: ProducerId, committed: bool, patience: Patience) -> ProducerId:
        """Commit or abort, and return the epoch of the next transaction. Asked again, it answers the same."""
        request = EndTxnRequest(
            version=NEXT_EPOCH,
            transactional_id=self.name,
            producer_id=producer.id,
            producer_epoch=producer.epoch,
            committed=committed,
        )
        with _as_client_errors():
            answer = self._cluster.ask_coordinator(self.name, request, patience)
        return ProducerId(answer.producer_id, answer.producer_epoch)

    def epoch(self, last: Transaction | None = None) -> LentEpoch:
        """Return the epoch of the next transaction, which the end of the last one gave."""
        return LentEpoch(self, last.following if isinstance(last, SharedTransaction) else None)

    def partitions(self, topic: str, patience: Patience) -> int:
        with _as_client_errors():
            return self._cluster.partitions(topic, patience)

    def mark(self, producer: ProducerId, marker: Marker, rows_before: int, patience: Patience) -> None:
        """Make the marker part of the transaction, which wrote `rows_before` to the marker's partition."""
        record = {"key": self.name.encode(), "value": value_of(marker).encode()}
        content = encode(pyarrow.RecordBatch.from_pylist([record]), producer, rows_before, int(time.time() * 1000))
        with _as_client_errors():
            self._cluster.partitions(self.marker_topic, patience)
            writer = PartitionWriter(self._cluster, self.name, self.marker_topic, 0)
            writer.add(Piece(content, 1))
            while True:
                writer.step()
                if writer.done:
                    return
                if not patience.lasts():
                    raise TimeoutError(
                        f"the marker was not acknowledged for {patience.elapsed:.0f} s: {writer.trouble}"
                    )
                self._cluster.wait(SLICE)


class LentEpoch:
    """The epoch of the next transaction: the one that the last one's end gave, or one yet to be asked for."""

    def __init__(self, coordinator: Coordinator, producer: ProducerId | None = None):
        self._coordinator, self._producer, self._begun = coordinator, producer, time.monotonic()

    @property
    def promising(self) -> bool:
        return self._producer is not None and time.monotonic() - self._begun < TOO_OLD

    def take(self, patience: Patience) -> SharedTransaction:
        producer = self._producer if self.promising and self._producer else self._coordinator.fence(patience.anew())
        return SharedTransaction(self._coordinator, producer)


class SharedTransaction(Transaction):
    """A transaction under `producer`; after its end, `following` is the epoch of the next one."""

    def __init__(self, coordinator: Coordinator, producer: ProducerId):
        self._coordinator, self._producer = coordinator, producer
        self._written: dict[tuple[str, int], int] = {}  # topic, partition -> rows
        self.following: ProducerId | None = None

    def begin(self) -> None:
        """Do nothing: the first record of a partition begins it."""

    def write(
        self, rows: DataFrame, topic: str | None, tags: Tags, patience: Patience, middle: Callable[[], object]
    ) -> int:
        rows = as_bytes(rows, topic)
        parallelism = rows.sparkSession.sparkContext.defaultParallelism
        partitions = self._coordinator.partitions(topic, patience) if topic else parallelism
        task = WriteTask(
            self._coordinator.connection,
            self._coordinator.name,
            self._producer,
            topic,
            tags,
            patience.seconds,
            spread=random.randrange(1 << 16),
            writers=writers_of(rows, partitions),
        )
        handed = handed_out(rows, topic, partitions, task.assign).withColumn(THREAD, expr(THREAD_OF_FIRST_ROW))
        found = reports(handed.mapInArrow(task.write, "report string").collect())
        count = _counted(found)
        self._written = {(topic, partition): rows for each in found for topic, partition, rows in each.written}
        if count:
            middle()
        return count

    def mark(self, marker: Marker, patience: Patience) -> None:
        rows_before = self._written.get((self._coordinator.marker_topic, 0), 0)  # a row may name that topic as its own
        self._coordinator.mark(self._producer, marker, rows_before, patience.anew())

    def commit(self, patience: Patience) -> None:
        self.following = self._coordinator.end(self._producer, True, patience.anew())

    def abort(self, seconds: float) -> None:
        self._coordinator.end(self._producer, False, Patience(seconds))


def _counted(found: list[Report]) -> int:
    """Return how many rows were written and acknowledged. Raises what a task met, or BatchFailed if any is missing."""
    for report in sorted(found, key=lambda each: each.error == AGAIN):
        if report.code is not None:
            raise KafkaException(KafkaError(report.code, report.error))
        if report.error.startswith("ValueError: "):
            raise ValueError(report.error.partition(": ")[2])
        if report.error == AGAIN:
            raise BatchFailed(
                "Spark ran a task of the batch again, so that its rows might be written twice: it was aborted. Why the "
                "task failed before is in Spark's log. Restart the query: the batch is repeated and published once"
            )
        if report.error:
            raise TimeoutError(report.error)
    written = [(topic, partition) for report in found for topic, partition, _ in report.written]
    if len(set(written)) < len(written):
        raise BatchFailed("two tasks wrote to one Kafka partition. Restart the query: the batch is repeated")
    rows, acknowledged = (
        sum(report.rows for report in found),
        sum(records for report in found for *_, records in report.written),
    )
    if rows != acknowledged:
        raise BatchFailed(f"{acknowledged} of {rows} rows were acknowledged. Restart the query: the batch is repeated")
    return rows


@contextlib.contextmanager
def _as_client_errors() -> Iterator[None]:
    """Raise what Kafka refuses as the other clients of the sink do."""
    try:
        yield
    except BrokerResponseError as error:
        raise KafkaException(KafkaError(error.errno, str(error))) from error
