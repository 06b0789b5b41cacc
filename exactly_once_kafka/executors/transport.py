"""Executors write their own rows in one transaction; the driver writes the marker and commits. Kafka 4.0 or later.

The driver gets a producer id and an epoch, and gives both to the tasks. No client library accepts the producer id of
another process, so this package encodes the record batches. The driver itself writes, in the same way, a batch that is
likely to be small, since passing its rows to Python on the executors takes longer than writing them. The driver writes
all batches if executors lack this library.

Guarantee: `rows` succeeds only when each task ran once, wrote to partitions that no other task wrote to (Kafka numbers
the records of a producer by partition), and has had every one of its rows acknowledged.
"""

from __future__ import annotations

import contextlib
import random
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from confluent_kafka import KafkaException
from py4j.protocol import Py4JJavaError
from pyspark.errors import PythonException
from pyspark.sql import DataFrame
from pyspark.sql.functions import expr

from exactly_once_kafka.deadline import Deadline
from exactly_once_kafka.errors import IncompleteWrite
from exactly_once_kafka.executors.choose_writer import NextBatch
from exactly_once_kafka.executors.partitioner import ArrowBatches, gathered, repartition_for_kafka
from exactly_once_kafka.executors.report import (
    AGAIN,
    LACKING,
    SILENT,
    THREAD,
    THREAD_OF_FIRST_ROW,
    Report,
    counted,
    missing_in,
    ran_again,
    reporting,
)
from exactly_once_kafka.executors.write_task import WriteTask
from exactly_once_kafka.kafka_client.open_transaction_repair import OpenTransactionRepair
from exactly_once_kafka.kafka_client.partition_writer import PartitionWriter
from exactly_once_kafka.kafka_client.record_batch import ProducerId
from exactly_once_kafka.kafka_client.settings import Encoding
from exactly_once_kafka.kafka_rows import BatchRows, as_bytes
from exactly_once_kafka.marker_store import MarkerStore
from exactly_once_kafka.producer import TOO_OLD
from exactly_once_kafka.producer_options import LOGGER
from exactly_once_kafka.protocol import Batch, Marker
from exactly_once_kafka.query import RunningQuery
from exactly_once_kafka.transport import KafkaTransport

# Seconds for which a task keeps its core while Kafka acknowledges nothing. Then the task gives up. The driver aborts
# the transaction, and waits for Kafka's answer to that, which needs no core.
KEEPS_CORE = 10


@dataclass
class Transaction:
    """A transaction, and what the driver knows about it so far. Kafka begins it with its first record."""

    producer: ProducerId
    by_driver: bool = False
    wrote: dict[tuple[str, int], int] = field(default_factory=dict)  # topic, partition -> rows
    marker_writer: PartitionWriter | None = None  # set when the marker is sent


@dataclass(frozen=True)
class EpochLease:
    """The producer id and epoch of the next transaction.

    `previous`: the transaction whose commit gave this epoch, if one did. `marker`: the marker in that transaction. It
    need not be read again: a driver that has changed it since has a newer epoch, and Kafka refuses this one.
    """

    producer: ProducerId
    since: float
    previous: Transaction | None = None
    marker: Marker | None = None

    @property
    def is_usable(self) -> bool:
        """Tell whether Kafka very likely still knows the producer. If it does not, it refuses what is written."""
        return time.monotonic() - self.since < TOO_OLD


class ExecutorsTransport(KafkaTransport):
    """Writes rows by tasks on executors, or by the driver if a batch is likely to have at most `driver_rows` rows.

    `repair` ends transactions that Kafka left open, and has the connection to the transaction coordinator.
    """

    def __init__(
        self,
        store: MarkerStore,
        batch_headers: bool,
        repair: OpenTransactionRepair,
        encoding: Encoding,
        driver_rows: int,
    ):
        super().__init__(store, batch_headers)
        self.coordinator, self._repair = repair.coordinator, repair
        self._encoding, self._driver_rows = encoding, driver_rows
        self.next_batch = NextBatch(driver_rows)
        self._lease: EpochLease | None = None

    @property
    def has_epoch(self) -> bool:
        return self._lease is not None and self._lease.is_usable

    def prepare(self, data: BatchRows) -> None:
        if self.has_epoch and self.next_batch.is_for_driver:
            data.begin()

    def start(
        self, batch: Batch, data: BatchRows, query: RunningQuery, deadline: Deadline, in_rows: Callable[[], object]
    ) -> None:
        super().start(batch, data, query, deadline, in_rows)
        self._tags = self.tags()
        self._retry_until: Deadline | None = None  # None until the first attempt has ended
        self._transaction: Transaction | None = None  # None as long as there is nothing to abort

    def fence(self) -> None:
        self._lease = EpochLease(self._repair.fence(self.deadline.restarted()), time.monotonic())

    def ensure_transaction_ended(self) -> None:
        self._repair.ensure_ended(self.deadline.restarted())

    def read_marker(self) -> Marker | None:
        assert self._lease is not None
        lease, last = self._lease, self._lease.previous
        if last is None:
            return super().read_marker()
        producer = self._repair.finish_everywhere(
            last.producer, True, lease.producer, self.deadline.restarted(), last.wrote, leaders_known=last.by_driver
        )
        self._lease = replace(lease, producer=producer)
        return lease.marker

    def rows(self) -> bool:
        assert self._lease is not None
        self._transaction = transaction = Transaction(self._lease.producer)
        self._lease = None  # one transaction per epoch
        if self.next_batch.is_for_driver:
            self.data.begin()
        elif self.next_batch.first_limit > 0 and self._retry_until is None:
            self.data.begin_if_few(self.next_batch.first_limit)
        # If Spark already computes the rows for the driver, the executors must not compute them as well.
        transaction.by_driver = self.data.begun
        task = self._task(transaction.producer)
        reports = [self._write_as_driver(task)] if transaction.by_driver else self._write_by_executors(task)
        if reports is None:
            return False
        count = counted(reports)
        transaction.wrote = {(topic, partition): rows for each in reports for topic, partition, rows in each.written}
        self.next_batch.note(count, sum(each.size for each in reports))
        if count:
            self.in_rows()
        return True

    def abort(self) -> None:
        producer = self._under_way.producer
        following = self.coordinator.end(producer, False, self.deadline.restarted())
        following = self._repair.finish_everywhere(producer, False, following, self.deadline.restarted())
        self._lease, self._transaction = EpochLease(following, time.monotonic()), None

    def marker(self) -> None:
        writer = self._under_way.marker_writer or self._begin_marker()
        self.coordinator.await_marker(writer, self.deadline.restarted())

    def commit(self) -> None:
        committed, self._transaction = self._under_way, None  # from here on, only Kafka knows whether it is committed
        following = self.coordinator.end(committed.producer, True, self.deadline.restarted())
        self._following = EpochLease(following, time.monotonic(), committed, Marker.of(self.batch))

    def next_epoch(self) -> None:
        self._lease = self._following

    def give_up(self, seconds: float) -> None:
        if self._transaction is not None:
            with contextlib.suppress(KafkaException, TimeoutError):  # the next epoch aborts it
                self.coordinator.end(self._transaction.producer, False, Deadline(seconds))
            self._transaction = None
        self.forget_epoch()

    def forget_epoch(self) -> None:
        self._lease = None

    def forget_what_was_learnt(self) -> None:
        self.next_batch = NextBatch(self._driver_rows)
        self.coordinator.disconnect()

    def close(self) -> None:
        super().close()
        self._repair.disconnect()

    @property
    def _under_way(self) -> Transaction:
        assert self._transaction is not None
        return self._transaction

    def _task(self, producer: ProducerId) -> WriteTask:
        data, seconds = self.data, self.deadline.seconds
        parallelism = 1 if data.begun else data.rows.sparkSession.sparkContext.defaultParallelism
        partitions = self.coordinator.partitions(data.topic, self.deadline.restarted()) if data.topic else parallelism
        return WriteTask(
            self.coordinator.connection,
            self._encoding,
            self.coordinator.name,
            producer,
            data.topic,
            self._tags,
            seconds if data.begun else min(seconds, KEEPS_CORE),
            spread=random.randrange(1 << 16),
            writers=min(partitions, parallelism),
            partitions=partitions,
        )

    def _write_as_driver(self, task: WriteTask) -> Report:
        """Write all rows from this process, as a task would."""
        with contextlib.closing(self.data):
            arrow_batches = gathered(iter(self.data))
            if task.topic not in (None, self.coordinator.marker_topic):  # no row goes to the marker's partition
                arrow_batches = self._with_marker(arrow_batches)
            return task.reported(
                lambda: task.write_all(self.coordinator.cluster, arrow_batches, self.deadline.has_time)
            )

    def _with_marker(self, arrow_batches: ArrowBatches) -> ArrowBatches:
        """Send the marker with the first rows, so that Kafka enrols all these partitions at the same time."""
        for arrow_batch in arrow_batches:
            if arrow_batch.num_rows and self._under_way.marker_writer is None:
                self._begin_marker()
            yield arrow_batch

    def _begin_marker(self) -> PartitionWriter:
        """Begin to write the marker. Its sequence number follows those of the rows in its partition."""
        transaction = self._under_way
        rows_before = transaction.wrote.get((self.coordinator.marker_topic, 0), 0)  # rows may go there
        transaction.marker_writer = self.coordinator.begin_marker(
            Marker.of(self.batch), transaction.producer, rows_before, self.deadline.restarted()
        )
        return transaction.marker_writer

    def _write_by_executors(self, task: WriteTask) -> list[Report] | None:
        """Let the executors write, and return their reports; None if the rows must be written again.

        They must if Kafka did not answer a task, and there is time left for the batch. They must also if an executor
        lacks something that it needs to write; then the driver writes the batch.
        """
        rows = self.data.rows
        reports = _written(task, rows)
        self._retry_until = self._retry_until or self.deadline.restarted()
        if any(report.failed == SILENT for report in reports) and self._retry_until.has_time():
            return None
        if lacking := [report.error for report in reports if report.failed == LACKING]:
            what = "sink %r: the driver writes, since executors cannot: %s (their Python is %r: see PYSPARK_PYTHON)"
            LOGGER.warning(what, self.store.name, lacking[0], rows.sparkSession.sparkContext.pythonExec)
            self.next_batch.executors_can = False
            return None
        return [*reports, Report(failed=AGAIN)] if _ran_again(reports, rows) else reports


def _ran_again(reports: list[Report], rows: DataFrame) -> bool:
    """Tell whether Spark ran tasks again although no report says so. Raises IncompleteWrite if Spark does not say."""
    if not reports or any(report.failed for report in reports):
        return False
    again = ran_again(rows.sparkSession.sparkContext, {report.stage for report in reports})
    if again is None and not all(report.rows for report in reports):  # tasks with rows report it themselves
        raise IncompleteWrite("Spark does not say whether it ran tasks again; spark.ui.retainedStages may be too small")
    return bool(again)


def _written(task: WriteTask, rows: DataFrame) -> list[Report]:
    """Let the executors write, and return their reports; one report if they cannot begin."""
    handed = repartition_for_kafka(as_bytes(rows, task.topic), task.topic, task.partitions, task.writers, task.assign)
    first_known = handed.withColumn(THREAD, expr(THREAD_OF_FIRST_ROW))
    try:
        answers = first_known.mapInArrow(reporting(task.write), "report string").collect()
    except (PythonException, Py4JJavaError) as error:
        if report := Report.in_trace(str(error)):
            return [report]
        if (lacking := missing_in(str(error))) is None:
            raise
        return [Report(failed=LACKING, error=lacking)]
    return [Report.parse(row.report) for row in answers]
