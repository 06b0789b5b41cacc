"""A student's own sink: the function `publish(rows, batch_id, kafka)` of lesson 07.

In the lesson it is a stage, and three functions of the lesson implement `kafka`. In a job of its own, under chaos,
`sink_of` provides these three functions. The fault points are around the calls of the producer:

    before_fence                 before the producer gets its epoch
    before_rows                  before begin_transaction
    mid_rows                     when the first row is in Kafka, before the second is produced
    before_commit, after_commit  around commit_transaction

Limitations: the rows are collected in the driver, and the marker is the offset of a consumer group, which Kafka forgets
a week after the group was last used.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, TypeVar

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from pyspark.sql import DataFrame

from exactly_once_kafka.deadline import Deadline
from exactly_once_kafka.points import AFTER_COMMIT, BEFORE_CHECKPOINT, BEFORE_COMMIT, BEFORE_ROWS, MID_ROWS, point
from exactly_once_kafka.points import Points as AnyPoints
from exactly_once_kafka.producer import resumed
from labs.pipeline.query.ip_count import Sink

SECONDS = 60  # for an answer of Kafka's
PAUSE = 0.1  # seconds
# A group's coordinator is not there before Kafka has made the topic of the groups, or when it moves to another broker.
NO_COORDINATOR_YET = (
    KafkaError.NOT_COORDINATOR,
    KafkaError.COORDINATOR_NOT_AVAILABLE,
    KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
)

Answer = TypeVar("Answer")

Publish = Callable[[DataFrame, int, "SinkKafka"], object]


def _no_marker(*_: Any) -> int:
    raise TypeError("the lesson's functions for markers are not defined yet: execute its cells in their order")


@dataclass(frozen=True)
class OwnStage:
    """A stage whose sink is `publish`. `markers` has (batch, last marked batch) for each call of `last_batch`.

    `new_producer(name)`, `last_batch(name, topic)` and `mark(name, topic, batch_id, producer)` are the lesson's
    functions; a sink without markers needs only the first.
    """

    publish: Publish
    new_producer: Callable[[str], Any]
    last_batch: Callable[[str, str], int] = _no_marker
    mark: Callable[[str, str, int, Any], object] = _no_marker
    name: str = "yours"
    keeps_checkpoint: bool = True
    restarts_from: str = "earliest"
    markers: list[tuple[int, int]] = field(default_factory=list)

    def make_sink(self, topic: str, bootstrap_servers: str, points: AnyPoints) -> Sink:
        """Return the foreachBatch function. The lesson's functions know the servers; the argument is not used."""
        kafka = SinkKafka(self, topic, points)

        def sink(rows: DataFrame, batch_id: int) -> None:
            kafka.take(batch_id)
            self.publish(rows, batch_id, kafka)
            points(BEFORE_CHECKPOINT, batch_id)

        return sink

    def found(self, batch_id: int) -> bool:
        """Tell whether `last_batch`, called while this batch was published, ever returned the batch itself."""
        return (batch_id, batch_id) in self.markers


def init_transactions(producer: Any) -> None:
    """Call the producer's init_transactions, retrying every 20 ms: librdkafka itself retries after half a second.

    Raises KafkaException.
    """
    resumed(producer.init_transactions, 0.02, Deadline(60))


def answered(ask: Callable[[], Answer]) -> Answer:
    """Return what `ask` returns, retrying for a minute while Kafka has no coordinator for the group yet.

    Raises KafkaException.
    """
    deadline = Deadline(SECONDS)
    while True:
        try:
            return ask()
        except KafkaException as error:
            if error.args[0].code() not in NO_COORDINATOR_YET or not deadline.has_time():
                raise
            time.sleep(PAUSE)


def sink_of(
    publish: Publish, topic: str, bootstrap_servers: str, points: AnyPoints, transaction_timeout_ms: int = 60_000
) -> Sink:
    """Return the foreachBatch function that a job calls, with producer and marker as in lesson 07."""
    kafka = {"bootstrap.servers": bootstrap_servers, "log_level": 0}

    def new_producer(name: str) -> Producer:
        timeout = {"transaction.timeout.ms": transaction_timeout_ms}
        producer = Producer({**kafka, **timeout, "transactional.id": name})
        init_transactions(producer)
        return producer

    def last_batch(name: str, topic: str) -> int:
        with Consumer({**kafka, "group.id": name}) as group:
            [marker] = answered(lambda: group.committed([TopicPartition(topic, 0)], timeout=SECONDS))
        return max(marker.offset, -1)  # confluent_kafka says -1001 where nothing was committed

    def mark(name: str, topic: str, batch_id: int, producer: Producer) -> None:
        with Consumer({**kafka, "group.id": name}) as group:
            marker = TopicPartition(topic, 0, batch_id)
            producer.send_offsets_to_transaction([marker], group.consumer_group_metadata(), SECONDS)

    return OwnStage(publish, new_producer, last_batch, mark).make_sink(topic, bootstrap_servers, points)


class SinkKafka:
    """The `kafka` argument of a student's `publish`.

    `take` tells it which batch is published now. The student's producer asks it for the batch, because one producer may
    be used for several batches.
    """

    def __init__(self, stage: OwnStage, topic: str, points: AnyPoints):
        self.topic, self._name = topic, f"sink-of-{topic}"
        self._stage, self._points = stage, points
        self.take(-1)

    def take(self, batch_id: int) -> None:
        """Note the batch that `publish` is called with."""
        self._batch, self.produced = batch_id, 0
        self.headers = [("batch_id", str(batch_id)), ("attempt", uuid.uuid4().hex[:8])]

    def reach(self, place: str) -> None:
        """Say that this batch has come to a fault point."""
        self._points(place, self._batch)

    def new_producer(self) -> PointedProducer:
        """Return a transactional producer with an epoch of its own."""
        self.reach(point("before", "fence"))
        return PointedProducer(self._stage.new_producer(self._name), self)

    def last_batch(self) -> int:
        """Return the batch of the last marker, or -1."""
        last = self._stage.last_batch(self._name, self.topic)
        self._stage.markers.append((self._batch, last))
        return last

    def mark(self, batch_id: int, producer: PointedProducer | None = None) -> None:
        """Mark the batch within the producer's open transaction."""
        if producer is None:
            raise TypeError("kafka.mark(batch_id, producer): in this lesson a mark is part of a transaction")
        self._stage.mark(self._name, self.topic, batch_id, producer.real)


class PointedProducer:
    """A transactional producer that passes the fault points and adds the batch's headers to each record.

    `real` is the producer that it calls. All other attributes are those of `real`.
    """

    def __init__(self, real: Any, kafka: SinkKafka):
        self.real, self._kafka = real, kafka

    def begin_transaction(self) -> None:
        self._kafka.reach(BEFORE_ROWS)
        self.real.begin_transaction()

    def produce(self, topic: str, value: str | bytes | None = None, *more: Any, **options: Any) -> None:
        if self._kafka.produced == 1:
            self.real.flush()
            self._kafka.reach(MID_ROWS)
        self.real.produce(topic, value, *more, **{"headers": self._kafka.headers, **options})
        self._kafka.produced += 1

    def commit_transaction(self, *timeout: float) -> None:
        self._kafka.reach(BEFORE_COMMIT)
        self.real.commit_transaction(*timeout)
        self._kafka.reach(AFTER_COMMIT)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.real, name)
