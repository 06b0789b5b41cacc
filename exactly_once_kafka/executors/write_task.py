"""The task on an executor that writes its rows into the driver's transaction, and reports what it wrote.

A failure is reported too, and not raised: after an exception Spark would run the task again.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, cast

import pyarrow
from kafka.errors import KafkaError, SaslAuthenticationFailedError
from pyspark import TaskContext

from exactly_once_kafka.deadline import Deadline
from exactly_once_kafka.executors.partitioner import ArrowBatches, split, with_writers
from exactly_once_kafka.executors.report import (
    AGAIN,
    BAD_ROW,
    BY_KAFKA,
    LACKING,
    SILENT,
    THREAD,
    MissingDependency,
    Report,
    Unassigned,
    check_environment,
    in_first_attempt,
)
from exactly_once_kafka.kafka_client.cluster import Cluster, NoSuchPartition, code_of, end_connections, kept_cluster
from exactly_once_kafka.kafka_client.partition_writer import EncodedBatch, PartitionWriter, send
from exactly_once_kafka.kafka_client.record_batch import ProducerId, cut, encode, one
from exactly_once_kafka.kafka_client.settings import Encoding
from exactly_once_kafka.kafka_rows import Tags, with_is_last

TagBytes = list[tuple[str, bytes]]

REPORTED = (KafkaError, TimeoutError, ValueError, MissingDependency)  # the errors that a report can hold
MOST_WAITING = 16 << 20  # bytes; with more that are not acknowledged, a task waits before it encodes further rows

# The last transaction for which Kafka did not answer a task of this process; Spark reuses the process for later tasks.
_given_up: tuple[str, ProducerId] | None = None


@dataclass(frozen=True)
class WriteTask:
    """A transaction to take part in: its producer, where rows go, what headers they get, how long to wait for Kafka.

    `connection` has kafka-python's settings. `spread`, which differs from one micro-batch to the next, chooses the
    partition of rows without key and partition. `partitions` is how many `topic` has; if the rows name their topics, it
    is an upper bound on the number of tasks.
    """

    connection: dict[str, Any] = field(repr=False)  # there may be a password in it
    encoding: Encoding
    transactional_id: str
    producer: ProducerId
    topic: str | None
    tags: Tags
    seconds: float
    spread: int
    writers: int
    partitions: int

    def assign(self, arrow_batches: ArrowBatches) -> ArrowBatches:
        """Give each row its Kafka partition and its writer."""
        try:
            # For a single topic, the driver has told the number. Do not ask Kafka, which may not answer.
            partitions_of = self._as_the_driver if self.topic else self._partitions_of(self._cluster())
            yield from with_writers(arrow_batches, self.topic, partitions_of, self._spread(), self.writers)
        except REPORTED as error:
            self._note(error)
            raise Unassigned(str(_report_of(error))) from error

    def write(self, arrow_batches: ArrowBatches) -> ArrowBatches:
        """Write all rows, and yield one row: the report, as JSON in the column `report`."""
        report = self.reported(lambda: self._write_once(arrow_batches))
        yield pyarrow.RecordBatch.from_arrays([one(str(report).encode()).cast(pyarrow.string())], ["report"])

    def reported(self, write: Callable[[], Report]) -> Report:
        """Return the report of `write`, or of its error."""
        try:
            return write()
        except REPORTED as error:
            return _report_of(error)

    def _write_once(self, arrow_batches: ArrowBatches) -> Report:
        """Write all rows if this is the first attempt of the task and its stage; otherwise report AGAIN."""
        filled = (each for each in arrow_batches if each.num_rows)
        first = next(filled, None)
        if not in_first_attempt(first):
            return Report(failed=AGAIN)
        rows = itertools.chain([first] if first else [], filled)
        try:
            written = self.write_all(self._cluster(), (each.drop_columns(THREAD) for each in rows))
            return replace(written, stage=cast(TaskContext, TaskContext.get()).stageId())
        except REPORTED as error:
            self._note(error)
            raise

    def _note(self, error: Exception) -> None:
        """Close the connections if Kafka did not answer, and note that, so that later tasks of the batch do not wait.

        Also close the connections if Kafka refused the login: a later task may bring another token.
        """
        global _given_up
        if isinstance(error, TimeoutError):
            _given_up = self.transactional_id, self.producer
        if isinstance(error, (TimeoutError, SaslAuthenticationFailedError)):
            end_connections(self.connection)

    def write_all(
        self, cluster: Cluster, arrow_batches: ArrowBatches, look: Callable[[], object] = lambda: None
    ) -> Report:
        """Write all rows; `look` is called while it waits, and may raise.

        Raises KafkaError, TimeoutError, ValueError for a row that cannot be a record.
        """
        cluster.produces.forget()  # drop what a task that failed has not sent
        writers, count, size = dict[tuple[str, int], PartitionWriter](), 0, 0
        known_here = self._partitions_of(cluster)
        partitions_of = self._as_the_driver if self.topic else known_here
        tags, spread = self._tags(), self._spread()
        for arrow_batch, is_last in with_is_last(arrow_batches):
            count, size = count + arrow_batch.num_rows, size + arrow_batch.nbytes
            parts = list(split(arrow_batch, self.topic, partitions_of, spread))
            for n, (topic, partition, part) in enumerate(parts, 1):
                if not 0 <= partition < max(known_here(topic, partition + 1), partitions_of(topic)):
                    raise NoSuchPartition(f"{topic}-{partition}")
                if (topic, partition) not in writers:
                    writers[topic, partition] = PartitionWriter(cluster, self.transactional_id, topic, partition)
                total = [("batch_rows", str(count).encode())] if tags and is_last and n == len(parts) else []
                self._add(writers[topic, partition], part, tags, total)
            send(cluster, list(writers.values()), self.seconds, look, MOST_WAITING)
        send(cluster, list(writers.values()), self.seconds, look)
        return Report(count, size, [(each.topic, each.partition, each.acknowledged) for each in writers.values()])

    def _add(self, writer: PartitionWriter, rows: pyarrow.RecordBatch, tags: TagBytes, total: TagBytes) -> None:
        """Encode rows of the writer's partition; the last of them gets `total` besides the `tags`."""
        pieces = list(cut(rows, [*tags, *total], self.encoding.largest))
        for piece in pieces:
            of_last = total if piece is pieces[-1] else []
            content = encode(
                piece,
                self.producer,
                writer.added,
                int(time.time() * 1000),
                tags=tags,
                tags_of_last=of_last,
                compression=self.encoding.compression,
            )
            writer.add(EncodedBatch(content, piece.num_rows))

    def _cluster(self) -> Cluster:
        """Return the client of this process.

        Raises MissingDependency, and TimeoutError if Kafka did not answer another task.
        """
        if (self.transactional_id, self.producer) == _given_up:
            raise TimeoutError("Kafka did not answer another task of this batch")
        check_environment(self.connection)
        return kept_cluster(self.connection)

    def _as_the_driver(self, topic: str) -> int:
        """Return how many partitions the driver saw. All tasks of the batch use that, even if there are more by now."""
        return self.partitions

    def _partitions_of(self, cluster: Cluster) -> Callable[..., int]:
        return lambda topic, at_least=1: cluster.partitions(topic, Deadline(self.seconds), at_least)

    def _tags(self) -> TagBytes:
        """Return the headers of every record. Each task is an attempt, with its own `attempt` and `batch_rows`."""
        context = TaskContext.get()
        task = context.partitionId() if context else "driver"
        return [(key, f"{value}.{task}".encode() if key == "attempt" else value.encode()) for key, value in self.tags]

    def _spread(self) -> int:
        context = TaskContext.get()
        return self.spread + (context.partitionId() if context else 0)


def _report_of(error: Exception) -> Report:
    if isinstance(error, KafkaError):
        return Report(failed=BY_KAFKA, error=str(error), code=code_of(error))
    if isinstance(error, MissingDependency):
        return Report(failed=LACKING, error=str(error))
    if isinstance(error, TimeoutError):
        return Report(failed=SILENT, error=str(error))
    return Report(failed=BAD_ROW, error=str(error))
