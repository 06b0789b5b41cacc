"""An exactly-once Kafka sink for Spark's Real-Time Mode, by `foreach`: rows and source offset in one transaction.

    sink = RealTimeKafkaSink(name="orders-eu", topic="orders", bootstrap_servers="127.0.0.1:9092")
    rows = records.select("key", "value", struct("topic", "partition", "offset").alias("source"))
    query = (
        rows.writeStream.option("checkpointLocation", "/var/lib/orders-eu")
        .outputMode("update")
        .trigger(realTime="5 seconds")
        .foreach(sink)
        .start()
    )

Guarantee: however often tasks, workers, executors or the driver die, freeze or come back, each row that the query makes
of a source's record is visible to `isolation.level=read_committed` consumers exactly once, and in the source's order
within each source partition. The sink relies on the source's offsets and not on Spark's epochs: a repeated epoch may
hold other records, and a task that fails looks to Python like one that ends.

Limitations: each task has a transaction of its own, so the rows of an epoch become visible task by task. The source
must be Kafka, and a task must get the rows of one source partition in their order: no shuffle in between. The query
must make the same rows of a record each time, in the same order. If a source topic is deleted and created again, its
offsets begin again, and the sink takes its records for published ones. The sink notices that a marker's topic was
deleted, unless somebody creates it again by hand, compacted, or the query has not ended its epoch 0. Rows wait in
memory for the end of their epoch.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from confluent_kafka import KafkaException
from pyspark import TaskContext
from pyspark.sql import Row

from exactly_once_kafka.deadline import Deadline
from exactly_once_kafka.errors import OutcomeUnknown, SinkRefused, failure, undecided
from exactly_once_kafka.marker_topic import MarkerTopicUnsafe
from exactly_once_kafka.names import check_topic
from exactly_once_kafka.options import producer_settings
from exactly_once_kafka.points import BEFORE_CHECKPOINT, Points, pass_by
from labs.pipeline.real_time.publisher import BEFORE_OPEN, Publisher, Task, make_marker_topics, marker_topics
from labs.pipeline.real_time.rows import PlacedRow, Rule, SourceRows, by_place

TIMEOUT = 60  # seconds, after which Kafka aborts a transaction


class RealTimeKafkaSink:
    """A writer for `writeStream.foreach`: Spark copies it to the tasks, and it writes there.

    `name` must be unique and must never change. `published` is the rule that tells which rows were published before.
    `points` is called in the tasks, with one of REAL_TIME_POINTS and the epoch. Rows need the columns `value` and
    `source`, a struct of the topic, partition and offset of the source's record, and may have `key`.

    A transaction is committed when its task ends, which is once in an epoch, or when it has `rows_at_once`.

    Raises, inside the query: SinkRefused if going on could lose or duplicate rows, BatchFailed if a restart of the
    query repeats the epoch, ValueError for a row that cannot be published.
    """

    def __init__(
        self,
        name: str,
        topic: str,
        *,
        bootstrap_servers: str,
        published: Rule = by_place,
        points: Points = pass_by,
        rows_at_once: int = 10_000,
    ):
        # Refuse bad arguments here, and not in a task.
        marker_topics(name)
        check_topic("topic", topic)
        producer_settings(name, bootstrap_servers, {})
        self.name, self.topic, self._servers = name, topic, bootstrap_servers
        self._published, self._points, self._rows_at_once = published, points, rows_at_once

    def open(self, partition_id: int, epoch_id: int) -> bool:
        """Begin one task of one epoch. Epoch 0 creates the marker topics; later they must exist."""
        self._points(BEFORE_OPEN, epoch_id)
        self._task = Task(self.name, partition_id, epoch_id, _query_id(self.name))
        self._source, self._rows = SourceRows(epoch_id), list[PlacedRow]()
        self._publisher: Publisher | None = None
        if epoch_id == 0:
            with self._explained() as deadline:
                make_marker_topics(self.name, self._servers, deadline)
        return True

    def process(self, row: Row) -> None:
        """Keep one row for the next transaction."""
        placed = self._source.placed(row)
        if not self._rows:
            self._begin(placed.source)
        self._rows.append(placed)
        if len(self._rows) >= self._rows_at_once:
            self._publish()

    def close(self, error: Exception | None) -> None:
        """End the task: publish what it has, unless there is an error.

        Without an error, Spark may still have ended the task early, or may be dead: the rows so far are published
        anyway, and the marker says how far they go.
        """
        if error is None:
            self._publish()
            self._points(BEFORE_CHECKPOINT, self._task.epoch)

    def _begin(self, source: tuple[str, int]) -> None:
        # Only when there is a row: a producer's epoch that comes after the task's end would fence the next task.
        if self._publisher is None:
            self._publisher = Publisher(self._task, source, self.topic, self._servers, self._published, self._points)
        with self._explained() as deadline:
            self._publisher.begin(deadline)

    def _publish(self) -> None:
        if self._publisher and self._rows:
            with self._explained() as deadline:
                self._publisher.publish(self._rows, deadline)
            self._rows.clear()

    @contextlib.contextmanager
    def _explained(self) -> Iterator[Deadline]:
        """Turn Kafka's errors in the block into BatchFailed or SinkRefused."""
        deadline, task = Deadline(TIMEOUT), self._task
        try:
            yield deadline
        except (KafkaException, TimeoutError) as error:
            failed = failure(error, task.name, task.epoch, deadline.elapsed, TIMEOUT)
            said = str(failed).replace(f"batch {task.epoch}:", f"epoch {task.epoch}, task {task.number}:")
            raise type(failed)(said) from error
        except OutcomeUnknown as error:
            said = undecided(error, "the results of the source's records around theirs")
            raise SinkRefused(f"{task}: {said}") from error
        except MarkerTopicUnsafe as unsafe:
            raise SinkRefused(f"{task}: {unsafe}") from unsafe


def _query_id(name: str) -> str:
    """Return the id of this task's query. Raises SinkRefused outside of a streaming query."""
    context = TaskContext.get()
    if query_id := context and context.getLocalProperty("sql.streaming.queryId"):
        return query_id
    raise SinkRefused(
        f"sink {name!r}: the task has no id of a streaming query, so the sink could not notice a deleted checkpoint. "
        "Use the sink with writeStream.foreach"
    )
