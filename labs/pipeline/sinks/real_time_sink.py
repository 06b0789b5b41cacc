"""Spark's Real-Time Mode: a query, and an exactly-once Kafka sink by `foreach`: rows and offset in one transaction.

Real-Time Mode of Spark 4.2 has no state, so the query counts nothing over time: each access of the log becomes a result
of its own, with count 1 (`report_each`). The sink:

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

In Real-Time Mode an epoch has no plan: only after an epoch has run does Spark log where it ended. A repeated epoch
begins where the last logged one ended, and may end elsewhere than the first time. So "epoch 7 is done" does not say
which rows are published, but "record 41 of partition 0 is done" does. `SourceRows` finds the source record of each row
and `by_place` decides which rows were published before; neither does any I/O. `Publisher` publishes the rows of one
source partition.

Limitations: each task has a transaction of its own, so the rows of an epoch become visible task by task. The source
must be Kafka, and a task must get the rows of one source partition in their order: no shuffle in between. The query
must make the same rows of a record each time, in the same order. If a source topic is deleted and created again, its
offsets begin again, and the sink takes its records for published ones. The sink notices that a marker's topic was
deleted, except in two cases: somebody has created it again by hand, as a compacted topic; or the query has not ended
its epoch 0. Rows wait in memory for the end of their epoch, or until there are `rows_at_once`.
"""

from __future__ import annotations

import contextlib
import functools
import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from confluent_kafka import KafkaError, KafkaException
from pyspark import TaskContext
from pyspark.sql import DataFrame, Row
from pyspark.sql import functions as F
from pyspark.sql.streaming import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamWriter

from exactly_once_kafka.deadline import Deadline
from exactly_once_kafka.errors import OutcomeUnknown, SinkRefused, failure, root_error, undecided
from exactly_once_kafka.kafka_client.open_transaction_repair import ensure_transaction_ended
from exactly_once_kafka.marker_store import MarkerStore
from exactly_once_kafka.marker_topic import MarkerTopicUnsafe, topic_for
from exactly_once_kafka.names import check_topic
from exactly_once_kafka.points import AFTER_COMMIT, BEFORE_CHECKPOINT, BEFORE_COMMIT, MID_ROWS, Points, pass_by
from exactly_once_kafka.producer import PendingProducer, aborting_on_failure, acknowledged, commit
from exactly_once_kafka.producer_options import producer_settings
from exactly_once_kafka.protocol import Marker
from labs.pipeline.records import RESULT_FIELDS

if TYPE_CHECKING:
    from pyspark.sql._typing import SupportsProcess


SHORTEST = "spark.sql.streaming.realTimeMode.minBatchDuration"  # milliseconds; 5,000 unless set


def report_each(records: DataFrame) -> DataFrame:
    """Turn source records `epoch_millis,ip` into results: key, value, and `source`, the record's place."""
    fields = F.split(records.value.cast("string"), ",")
    result = (fields[0].cast("long"), fields[1], F.lit(1))
    value = F.to_json(F.struct(*(each.alias(name) for name, each in zip(RESULT_FIELDS, result, strict=True))))
    source = F.struct("topic", "partition", "offset").alias("source")
    return records.select(fields[1].alias("key"), value.alias("value"), source)


def start_real_time(
    rows: DataFrame, sink: SupportsProcess, checkpoint: str, epoch: str = "5 seconds"
) -> StreamingQuery:
    """Start writing `rows` through `sink`, an object for `foreach`, in Real-Time Mode with epochs of this length."""
    return real_time_writer(rows, checkpoint, epoch).foreach(sink).start()


def start_sparks_own(
    rows: DataFrame, bootstrap_servers: str, topic: str, checkpoint: str, epoch: str = "5 seconds"
) -> StreamingQuery:
    """Start writing `rows` through Spark's own Kafka sink, in Real-Time Mode with epochs of this length."""
    writer = real_time_writer(rows.select("key", "value"), checkpoint, epoch).format("kafka").option("topic", topic)
    return writer.option("kafka.bootstrap.servers", bootstrap_servers).start()


def real_time_writer(rows: DataFrame, checkpoint: str, epoch: str) -> DataStreamWriter:
    """Return a writer of `rows` in Real-Time Mode, without a sink."""
    writer = rows.writeStream.outputMode("update").option("checkpointLocation", checkpoint)
    return writer.trigger(realTime=epoch)  # type: ignore[call-overload]  # pyspark's overloads do not have it yet


COLUMNS = {"key", "value", "source"}
TO_DO = 'select("key", "value", struct("topic", "partition", "offset").alias("source")) right after the source'


class Place(NamedTuple):
    """The place of a row: its epoch, the offset of its source record, and its number among the rows of that record.

    The first row of a record has the number 1. A marker has the place of the last row that its transaction published.
    """

    epoch: int
    offset: int
    row: int


Rule = Callable[[Place, Place | None], bool]


def by_place(row: Place, marker: Place | None) -> bool:
    """Tell whether the row was published before; `marker` is None if nothing was."""
    return marker is not None and (row.offset, row.row) <= (marker.offset, marker.row)


class PlacedRow(NamedTuple):
    """A row to publish, and the topic and partition of the source that it comes from."""

    source: tuple[str, int]
    place: Place
    key: bytes | None
    value: bytes | None


class SourceRows:
    """Gives each row of a task its place. The rows of a task must be of one source partition, in its order."""

    def __init__(self, epoch: int) -> None:
        self._last = Place(epoch, -1, 0)
        self._source: tuple[str, int] | None = None

    def placed(self, row: Row) -> PlacedRow:
        """Return the next row with its place. Raises ValueError for one that cannot be published."""
        fields = row.asDict()
        if not {"value", "source"} <= fields.keys() <= COLUMNS:
            raise ValueError(
                f"the rows have the columns {', '.join(fields)}; expected value, source and perhaps key: {TO_DO}"
            )
        value, key = _bytes("value", fields["value"]), _bytes("key", fields.get("key"))
        topic, partition, offset = _source(fields["source"])
        self._source = self._source or (topic, partition)
        if self._source != (topic, partition):
            raise ValueError(
                f"the task has rows of {self._source} and of {(topic, partition)}; expected those of one partition of "
                "the source, as they come in Real-Time Mode without a shuffle"
            )
        if offset < self._last.offset:
            raise ValueError(
                f"a row of the source's offset {offset} came after one of {self._last.offset}; expected the order of "
                "the source: let nothing between source and sink move rows from one task to another, or sort them"
            )
        number = self._last.row + 1 if offset == self._last.offset else 1
        self._last = Place(self._last.epoch, offset, number)
        return PlacedRow(self._source, self._last, key, value)


def _source(source: Any) -> tuple[str, int, int]:
    try:
        return str(source["topic"]), int(source["partition"]), int(source["offset"])
    except (TypeError, ValueError, KeyError) as error:
        raise ValueError(
            f"column 'source' must have topic, partition and offset, and is {source!r}: {TO_DO}"
        ) from error


def _bytes(column: str, value: Any) -> bytes | None:
    if isinstance(value, str):
        return value.encode()
    if isinstance(value, bytes | bytearray):
        return bytes(value)
    if value is not None:
        raise ValueError(f"column {column!r} must be string or binary, and has {value!r:.40}: cast it, or use to_json")
    return None


# The fault points of an epoch in this sink, all in the process of its task.
BEFORE_OPEN = "before_open"  # the task has begun, and has neither a producer's epoch nor the marker
AFTER_BEGIN = "after_begin"  # the producer's epoch is granted, the marker is read, nothing is written
REAL_TIME_POINTS = (BEFORE_OPEN, AFTER_BEGIN, MID_ROWS, BEFORE_COMMIT, AFTER_COMMIT, BEFORE_CHECKPOINT)

MARKER_TOPICS = 4  # tasks whose source partitions share a marker topic may wait for each other's transactions


def marker_topics(name: str) -> list[str]:
    """Return the topics of a sink's markers. Raises ValueError if it cannot have this name."""
    return [topic_for(name, f"{name}-marker-{number}") for number in range(MARKER_TOPICS)]


def make_marker_topics(name: str, servers: str, deadline: Deadline) -> None:
    """Create the topics that do not exist. Raises KafkaException, TimeoutError, MarkerTopicUnsafe."""
    for topic in marker_topics(name):
        MarkerStore(name, topic, servers, {}).topic.create(deadline)


@dataclass(frozen=True)
class Task:
    """Task `number` of epoch `epoch` of the query `query_id`, for the sink `name`."""

    name: str
    number: int
    epoch: int
    query_id: str

    def __str__(self) -> str:
        return f"sink {self.name!r}, epoch {self.epoch}, task {self.number} of query {self.query_id}"

    def refusal(self, why: str) -> SinkRefused:
        return SinkRefused(
            f"{self}: {why}. Writing could lose or double rows. Likely causes: the checkpoint was deleted; another "
            "query uses the name; or a marker's topic was deleted. What to do: restore the checkpoint, or give a new "
            "query a new name"
        )


class Publisher:
    """Publishes one task's rows, all from one partition of the source.

    Each transaction has a marker, a record in a compacted topic that says how far the source was read. Reading a marker
    waits for every transaction that is open in its topic, also for that of a task that died. A task's new epoch aborts
    the open transactions of its own source partition; those of other partitions stay open until they time out. So there
    are several marker topics, and the partitions of the source are spread over them.

    Raises KafkaException, TimeoutError, SinkRefused, MarkerTopicUnsafe, OutcomeUnknown; after any of them it cannot be
    used again.
    """

    def __init__(self, task: Task, source: tuple[str, int], topic: str, servers: str, published: Rule, points: Points):
        self._task, self._topic, self._published, self._points = task, topic, published, points
        # Not the task's number, which may belong to another partition after a restart. No topic's name has a slash.
        self._key = f"{task.name}/{source[0]}/{source[1]}"
        self._settings = producer_settings(self._key, servers, {})
        self._marker_topic = marker_topics(task.name)[source[1] % MARKER_TOPICS]
        self._store = MarkerStore(self._key, self._marker_topic, servers, self._settings)
        self._last: Place | None = None  # of the last row that it published
        self._marker: Place | None = None

    def begin(self, deadline: Deadline) -> None:
        """Fence the other producers of this source partition, and read what was published before."""
        if self._store.topic.id(deadline) is None:
            raise self._task.refusal(f"there is no topic {self._marker_topic!r}, which the sink made in epoch 0")

        # Step 1. A producer with a new epoch, which fences every older one of this source partition: that of a task
        # that was frozen, or runs twice, or whose driver came back. What Kafka left open is ended before.
        ensure_ended = functools.partial(
            ensure_transaction_ended, self._key, self._settings, self._marker_topic, self._topic, abort=True
        )
        self._producer = PendingProducer(self._settings, first=ensure_ended).take(deadline)

        # Step 2. Only then read the marker: nobody can change it without taking a newer epoch.
        self._marker = self._read(deadline)
        self._points(AFTER_BEGIN, self._task.epoch)

    def publish(self, rows: Sequence[PlacedRow], deadline: Deadline) -> None:
        """Publish those of the rows that were not published before. Call `begin` before each call."""
        # Step 3. Each row after the marker, and the marker of the last row, in one transaction.
        new = [row for row in rows if not self._published(row.place, self._marker)]
        if not new:
            return  # the marker must not go back
        producer, last = self._producer, rows[-1].place
        failures: list[KafkaError] = []
        failed = lambda error, _: failures.append(error)  # noqa: E731
        producer.begin_transaction()
        with aborting_on_failure(producer.abort_transaction):
            with root_error(producer, self._topic):
                for row in new:
                    producer.produce(self._topic, row.value, row.key, on_delivery=failed)
                acknowledged(producer, len(new), failures, deadline, [self._topic])
            self._points(MID_ROWS, self._task.epoch)
            plan = json.dumps({"offset": last.offset, "row": last.row})
            self._store.send(Marker(last.epoch, self._task.query_id, plan), producer, deadline)
            self._points(BEFORE_COMMIT, self._task.epoch)

        # Step 4. The next transaction begins with step 1, so that a late commit cannot end it.
        commit(producer, deadline)
        self._last = last
        self._points(AFTER_COMMIT, self._task.epoch)

    def _read(self, deadline: Deadline) -> Place | None:
        """Return the place of the last published row, by the marker. Raises SinkRefused if the marker does not fit."""
        found = self._store.read(deadline.restarted())
        if found and found.query_id != self._task.query_id:
            raise self._task.refusal(f"query {found.query_id} has published rows of this source partition")
        marker = Place(found.batch_id, **json.loads(found.plan or "")) if found else None
        if self._last and not by_place(self._last, marker):
            raise self._task.refusal(f"the marker went back from {self._last} to {marker}")
        return marker


TIMEOUT = 60  # seconds for the requests to Kafka; as long as the transaction timeout of `producer_settings`


class RealTimeKafkaSink:
    """A writer for `writeStream.foreach`: Spark copies it to the tasks, and it writes there.

    `name` must be unique and must never change. `published` is the rule that tells which rows were published before.
    `points` is called in the tasks, with one of REAL_TIME_POINTS and the epoch. Rows need the columns `value` and
    `source`, a struct of the topic, partition and offset of the source's record, and may have `key`.

    A transaction is committed when its task ends, which is once in an epoch, or when it has `rows_at_once` rows.

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
