"""Publishes the rows of one source partition; each transaction has a marker that says how far the source was read.

A marker is a record in a compacted topic. Its reader waits for every transaction that is open there, also for that of a
task that died. A task's new epoch ends the open transactions of its own source partition; those of others would last
until they time out. So there are several marker topics, and the partitions of the source are spread over them.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Sequence
from dataclasses import dataclass

from confluent_kafka import KafkaError

from exactly_once_kafka.deadline import Deadline
from exactly_once_kafka.errors import SinkRefused, root_error
from exactly_once_kafka.kafka_client.open_transactions import ensure_transaction_ended
from exactly_once_kafka.marker_store import MarkerStore
from exactly_once_kafka.marker_topic import topic_for
from exactly_once_kafka.options import producer_settings
from exactly_once_kafka.points import AFTER_COMMIT, BEFORE_CHECKPOINT, BEFORE_COMMIT, MID_ROWS, Points
from exactly_once_kafka.producer import PendingProducer, aborting_on_failure, acknowledged, commit
from exactly_once_kafka.protocol import Marker
from labs.pipeline.real_time.rows import Place, PlacedRow, Rule, by_place

# The named places that an epoch passes on its way through the sink, in the process of its task.
BEFORE_OPEN = "before_open"  # the task has begun, and knows nothing yet
AFTER_BEGIN = "after_begin"  # the producer's epoch is granted, the marker read; nothing is written
REAL_TIME_POINTS = (BEFORE_OPEN, AFTER_BEGIN, MID_ROWS, BEFORE_COMMIT, AFTER_COMMIT, BEFORE_CHECKPOINT)

MARKER_TOPICS = 4  # source partitions that share a topic may wait for one another


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
