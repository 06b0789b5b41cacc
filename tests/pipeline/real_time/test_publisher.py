"""What one partition of the source has published: no transaction of another is waited for, and no marker is missed."""

from __future__ import annotations

import gc
import time
import weakref

import psutil
import pytest
from confluent_kafka import KafkaException

from exactly_once_kafka.deadline import Deadline
from exactly_once_kafka.errors import FENCED, SinkRefused
from exactly_once_kafka.protocol import Marker
from labs.equipment.waiting import eventually
from labs.pipeline.sinks.real_time_sink import (
    MARKER_TOPICS,
    Place,
    PlacedRow,
    Publisher,
    Task,
    by_place,
    make_marker_topics,
)
from tests.sink.conftest import numbers_in

pytestmark = pytest.mark.long

TIMEOUT = 60  # seconds, of a transaction: how long a dead one is open
SOON = 20  # seconds: long before that


def rows(*offsets: int, epoch: int = 1) -> list[PlacedRow]:
    return [PlacedRow(("in", 0), Place(epoch, offset, 1), None, str(offset).encode()) for offset in offsets]


class Partitions:
    """Partitions of a source called `in`, whose offsets are written as they are."""

    def __init__(self, servers: str, topic: str):
        self.servers, self.topic = servers, topic
        make_marker_topics(topic, servers, Deadline(TIMEOUT))

    def begun(
        self,
        partition: int,
        epoch: int = 1,
        query: str = "query",
        seconds: float = TIMEOUT,
        transaction_seconds: int = TIMEOUT,
    ) -> Publisher:
        task = Task(self.topic, partition, epoch, query)
        publisher = Publisher(task, ("in", partition), self.topic, self.servers, by_place, lambda *_: None)
        publisher._settings["transaction.timeout.ms"] = transaction_seconds * 1000
        publisher.begin(Deadline(seconds))
        return publisher

    def write(self, partition: int, *offsets: int, epoch: int = 1) -> Publisher:
        """Write these offsets in one epoch, and commit."""
        publisher = self.begun(partition, epoch)
        publisher.publish(rows(*offsets, epoch=epoch), Deadline(TIMEOUT))
        return publisher

    def die_before_commit(self, partition: int, transaction_seconds: int = TIMEOUT) -> Publisher:
        """Leave a transaction open, with its marker sent; return the publisher, whose end nobody may abort."""
        publisher = self.begun(partition, transaction_seconds=transaction_seconds)
        publisher._producer.begin_transaction()
        marker = Marker(1, "query", '{"offset":0,"row":1}')
        publisher._store.send(marker, publisher._producer, Deadline(TIMEOUT))
        return publisher

    def published(self) -> list[int]:
        return numbers_in(self.servers, self.topic)


@pytest.fixture
def partitions(broker, topic):
    return Partitions(broker.bootstrap_servers, topic())


def test_task_does_not_wait_for_the_transaction_of_another_that_died_before_its_commit(partitions):
    open_one, began = partitions.die_before_commit(0), time.monotonic()
    partitions.write(1, 0, 1)
    assert time.monotonic() - began < SOON
    assert partitions.published() == [0, 1]
    del open_one


def test_own_open_transaction_is_ended_and_its_marker_is_none(partitions):
    open_one = partitions.die_before_commit(0)
    partitions.write(0, 0, 1)
    assert partitions.published() == [0, 1]
    del open_one


def test_marker_behind_the_open_transaction_of_one_that_shares_the_topic_is_waited_for(partitions):
    sharing = 1 + MARKER_TOPICS
    begun = partitions.begun(sharing)
    open_one = partitions.die_before_commit(1)
    begun.publish(rows(0, 1), Deadline(TIMEOUT))
    with pytest.raises(TimeoutError, match="could not be read"):
        partitions.begun(sharing, epoch=2, seconds=2)
    open_one._producer.abort_transaction(30)
    partitions.write(sharing, 0, 1, 2, epoch=2)
    assert partitions.published() == [0, 1, 2]


def test_epoch_in_which_all_was_published_before_does_not_take_the_marker_back(partitions):
    partitions.write(1, 0, 1, 2)
    partitions.write(1, 0, epoch=2)
    partitions.write(1, 0, 1, 2, 3, epoch=3)
    assert partitions.published() == [0, 1, 2, 3]


def test_task_that_runs_twice_is_fenced(partitions):
    first = partitions.begun(0)
    partitions.write(0, 0, 1)
    with pytest.raises(KafkaException) as failed:
        first.publish(rows(0, 1, 2), Deadline(TIMEOUT))
    assert failed.value.args[0].code() in FENCED
    assert partitions.published() == [0, 1]


def test_epoch_that_lasts_longer_than_a_transaction_may_is_published(partitions):
    """Kafka aborts a transaction after its timeout; a task that waits for rows has none open."""
    publisher = partitions.begun(0, transaction_seconds=1)
    as_long = partitions.die_before_commit(1, transaction_seconds=1)
    partitions.begun(1 + MARKER_TOPICS)  # once that one's time is over
    publisher.publish(rows(0, 1), Deadline(TIMEOUT))
    assert partitions.published() == [0, 1]
    del as_long


def test_another_query_is_refused(partitions):
    partitions.write(0, 0)
    with pytest.raises(SinkRefused, match="query query has published rows of this source partition"):
        partitions.begun(0, query="another")


def test_task_leaves_nothing_behind(partitions):
    """Spark uses a worker for many tasks."""

    def run(epoch: int) -> weakref.ref:
        return weakref.ref(partitions.write(0, epoch, epoch=epoch))

    run(0)
    gc.collect()
    gc.disable()
    try:
        before = psutil.Process().num_threads()
        assert [run(epoch)() for epoch in range(1, 4)] == [None] * 3
        eventually(lambda: psutil.Process().num_threads() <= before + 2, timeout=60)
    finally:
        gc.enable()
    assert partitions.published() == [0, 1, 2, 3]
