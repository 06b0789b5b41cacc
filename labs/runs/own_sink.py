"""A sink of one's own as a stage: the function `publish(rows, batch_id, kafka)` that a student writes in lesson 06.

What `kafka` does is written in the lesson, in three functions; here it gets a sink's name, the fault points around the
producer's calls, and the headers by which a batch is known afterwards.

    before_write     when the transaction is about to begin
    mid_transaction  when the first row is in Kafka, and the second is about to be produced
    before_commit, after_commit     around commit_transaction
"""

from __future__ import annotations

import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from pyspark.sql import DataFrame

from exactly_once_kafka.patience import Patience
from exactly_once_kafka.points import AFTER_COMMIT, BEFORE_CHECKPOINT, BEFORE_COMMIT, BEFORE_WRITE, MID_TRANSACTION
from exactly_once_kafka.points import Points as AnyPoints
from exactly_once_kafka.producer import resumed
from labs.pipeline.query.ip_count import Sink

Publish = Callable[[DataFrame, int, "SinkKafka"], object]


def _no_marker(*_: Any) -> int:
    raise TypeError("this lesson has not come to markers yet: execute its cells in their order")


@dataclass(frozen=True)
class OwnStage:
    """A stage whose sink is `publish`. `markers` has (batch, the last batch that was marked) of each question for it.

    `new_producer(name)`, `last_batch(name, topic)` and `mark(name, topic, batch_id, producer)` are the lesson's; a sink
    that does without markers needs only the first.
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
        """Return the foreachBatch function. The servers are those that the lesson's functions know."""

        def sink(rows: DataFrame, batch_id: int) -> None:
            self.publish(rows, batch_id, SinkKafka(self, topic, batch_id, points))
            points(BEFORE_CHECKPOINT, batch_id)

        return sink

    def found(self, batch_id: int) -> bool:
        """Tell whether the batch ever found a marker of its own."""
        return (batch_id, batch_id) in self.markers


def init_transactions(producer: Any) -> None:
    """Call the producer's init_transactions, again every 20 ms: by itself librdkafka looks again after half a second.

    Raises KafkaException.
    """
    resumed(producer.init_transactions, 0.02, Patience(60))


class SinkKafka:
    """What a student's `publish` is handed for one batch."""

    def __init__(self, stage: OwnStage, topic: str, batch_id: int, points: AnyPoints):
        self.topic, self._name = topic, f"sink-of-{topic}"
        self._stage, self._batch, self._points = stage, batch_id, lambda point: points(point, batch_id)

    def new_producer(self) -> PointedProducer:
        """Return a transactional producer with an epoch of its own."""
        headers = [("batch_id", str(self._batch)), ("attempt", uuid.uuid4().hex[:8])]
        return PointedProducer(self._stage.new_producer(self._name), self._points, headers)

    def last_batch(self) -> int:
        """Return the batch that was marked last, or -1."""
        last = self._stage.last_batch(self._name, self.topic)
        self._stage.markers.append((self._batch, last))
        return last

    def mark(self, batch_id: int, producer: PointedProducer | None = None) -> None:
        """Mark the batch within the producer's open transaction."""
        if producer is None:
            raise TypeError("kafka.mark(batch_id, producer): in this lesson a mark is part of a transaction")
        self._stage.mark(self._name, self.topic, batch_id, producer._real)


class PointedProducer:
    """A transactional producer whose calls pass the fault points, and whose records say which batch they are of."""

    def __init__(self, real: Any, points: Callable[[str], object], headers: list[tuple[str, str]]):
        self._real, self._points, self._headers, self._produced = real, points, headers, 0

    def begin_transaction(self) -> None:
        self._points(BEFORE_WRITE)
        self._real.begin_transaction()

    def produce(self, topic: str, value: str | bytes | None = None, *more: Any, **options: Any) -> None:
        if self._produced == 1:
            self._real.flush()
            self._points(MID_TRANSACTION)
        self._real.produce(topic, value, *more, **{"headers": self._headers, **options})
        self._produced += 1

    def commit_transaction(self, *timeout: float) -> None:
        self._points(BEFORE_COMMIT)
        self._real.commit_transaction(*timeout)
        self._points(AFTER_COMMIT)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._real, name)
