"""An exactly-once Kafka sink for Spark's Real-Time Mode, by `foreach`: rows, and how far the source was read, in one.

    from exactly_once_kafka import RealTimeKafkaSink

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
of a source's record is visible to `isolation.level=read_committed` consumers exactly once, and in the source's order as
far as one partition of the source goes. It does not rest on what Spark calls an epoch: what a repeated epoch holds is
decided anew, and a task that fails looks to Python like one that ends. It rests on the source's offsets.

Where it stops: a transaction is one task's, so what the tasks of an epoch wrote becomes visible task by task, not as a
whole. The source must be Kafka, each task's rows of one partition of it, in its order: no shuffle in between. The query
must make the same rows of a record each time, in the same order. A source topic that is deleted and made anew begins
with offsets that the sink takes for old ones. Until Kafka has the marker's first record, in epoch 0, a deletion of the
marker's topic is not noticed. Spark hands rows to Python in batches: see docs/real-time.md for what that does to time.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from pyspark.sql import Row

from exactly_once_kafka.marker_topic import topic_for
from exactly_once_kafka.names import check_topic
from exactly_once_kafka.points import BEFORE_CHECKPOINT, Points, pass_by
from exactly_once_kafka.real_time.clients import Clients
from exactly_once_kafka.real_time.partition_writer import PartitionWriter
from exactly_once_kafka.real_time.points import BEFORE_OPEN
from exactly_once_kafka.real_time.row import record_of, source_of
from exactly_once_kafka.real_time.task import Task
from exactly_once_kafka.real_time.task_writer import TaskWriter


class RealTimeKafkaSink:
    """What `writeStream.foreach` takes: it is copied to the tasks, and writes there.

    `name` identifies the sink for good: no two queries may share it, and no restart may change it. `topic`,
    `marker_topic`, `points` and `options` are as those of ExactlyOnceKafkaSink; `points` is called in the tasks, with
    one of REAL_TIME_POINTS and the epoch. Rows need the columns `value` and `source`, a struct of the topic, partition
    and offset of the source's record, and may have `key`, `headers`, `partition`, `topic`.

    A transaction is committed when its task ends, which is once in an epoch, or after `commit_seconds`, by default half
    of transaction_timeout_ms: an epoch may last for hours.

    Raises, inside the query: SinkRefused where going on could lose or double rows, BatchFailed where a restart of the
    query repeats the epoch, ValueError for a row that cannot be a record.
    """

    kind_of_writer: Callable[..., PartitionWriter] = PartitionWriter

    def __init__(
        self,
        name: str,
        topic: str | None = None,
        *,
        bootstrap_servers: str,
        marker_topic: str | None = None,
        commit_seconds: float | None = None,
        points: Points = pass_by,
        **options: Any,
    ):
        self.name, self.topic, self.points = name, topic, points
        self.marker_topic = topic_for(name, marker_topic)
        if topic is not None:
            check_topic("topic", topic)
        self._clients = Clients(name, topic, self.marker_topic, bootstrap_servers, {"linger_ms": 0, **options})
        timeout = self._clients.timeout
        self.commit_seconds = timeout / 2 if commit_seconds is None else commit_seconds
        if not 0 < self.commit_seconds < timeout:
            raise ValueError(
                f"commit_seconds is {commit_seconds:g}; expected more than 0, and less than the {timeout:g} s "
                "after which Kafka aborts a transaction: raise transaction_timeout_ms"
            )

    def open(self, partition_id: int, epoch_id: int) -> bool:
        """Begin one task of one epoch."""
        self.points(BEFORE_OPEN, epoch_id)
        point = functools.partial(_at, self.points, epoch_id)
        task = Task.current(self.name, partition_id, epoch_id)
        self._epoch = epoch_id
        self._writer = TaskWriter(task, self._clients, self.kind_of_writer, point, self.commit_seconds)
        self._writer.begin()
        return True

    def process(self, row: Row) -> None:
        """Write one row, unless it was published before."""
        self._writer.write(*source_of(row), record_of(row, self.topic))

    def close(self, error: Exception | None) -> None:
        """End the task: publish what it wrote, unless there is an error.

        No error may also mean that Spark ended the task early, or is dead: what came so far is published all the same,
        and the marker says how far that is.
        """
        self._writer.end(publish=error is None)
        if error is None:
            self.points(BEFORE_CHECKPOINT, self._epoch)


def _at(points: Points, epoch: int, point: str) -> None:
    points(point, epoch)
