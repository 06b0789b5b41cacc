"""The marker of one source partition: no transaction of another is waited for, and no own marker is missed."""

from __future__ import annotations

import time

import pytest
from confluent_kafka.admin import AdminClient

from exactly_once_kafka.batch import Marker
from exactly_once_kafka.patience import Patience
from exactly_once_kafka.real_time.clients import Clients
from exactly_once_kafka.real_time.partition_writer import PartitionWriter, key_of
from exactly_once_kafka.real_time.task import Task
from tests.sink.conftest import numbers_in

pytestmark = pytest.mark.long

TIMEOUT = 60  # seconds, of a transaction: how long a dead one is open
SOON = 20  # seconds: long before that


class Partitions:
    """Partitions of a source called `in`, whose offsets are written as they are."""

    def __init__(self, servers: str, topic: str, marker_topic: str):
        self.servers, self.topic = servers, topic
        self.clients = Clients("sink", topic, marker_topic, servers, {})

    def key(self, partition: int) -> str:
        return key_of("sink", "in", partition)

    def write(self, partition: int, *offsets: int, epoch: int = 1) -> None:
        """Write these offsets in one epoch, and commit."""
        task = Task("sink", partition, epoch, "query")
        writer = PartitionWriter(task, self.clients, self.key(partition), lambda _: None)
        for offset in offsets:
            writer.write(offset, (self.topic, str(offset).encode(), None, 0, None))
        writer.commit()

    def die_before_commit(self, partition: int):
        """Leave a transaction open, with its marker sent; return the producer, which nobody may close."""
        key = self.key(partition)
        producer = self.clients.new_epoch(key).take(Patience(TIMEOUT))
        producer.begin_transaction()
        self.clients.marker(key).send(Marker(1, "query", '{"offset":0,"row":1}'), producer, Patience(TIMEOUT))
        return producer

    def forget_group(self, partition: int) -> None:
        """Let Kafka forget the consumer group that has the marker too, as it does after a week."""
        key = self.key(partition)
        admin = AdminClient({"bootstrap.servers": self.servers})
        admin.delete_consumer_groups([key])[key].result(30)

    def published(self) -> list[int]:
        return numbers_in(self.servers, self.topic)


@pytest.fixture
def partitions(broker, topic):
    return Partitions(broker.bootstrap_servers, topic(), topic(cleanup_policy="compact"))


def test_task_does_not_wait_for_the_transaction_of_another_that_died_before_its_commit(partitions):
    open_one, began = partitions.die_before_commit(0), time.monotonic()
    partitions.write(1, 0, 1)
    assert time.monotonic() - began < SOON
    assert partitions.published() == [0, 1]
    del open_one


def test_own_marker_behind_the_open_transaction_of_another_is_not_missed(partitions):
    open_one = partitions.die_before_commit(0)
    partitions.write(1, 0, 1)
    partitions.write(1, 0, 1, 2, epoch=2)
    assert partitions.published() == [0, 1, 2]
    del open_one


def test_own_open_transaction_is_ended_and_its_marker_is_none(partitions):
    open_one = partitions.die_before_commit(0)
    partitions.write(0, 0, 1)
    assert partitions.published() == [0, 1]
    del open_one


def test_marker_is_in_the_topic_when_the_group_is_forgotten(partitions):
    partitions.write(1, 0, 1)
    partitions.forget_group(1)
    partitions.write(1, 0, 1, 2, epoch=2)
    assert partitions.published() == [0, 1, 2]


def test_marker_that_is_only_behind_the_open_transaction_of_another_is_waited_for(partitions):
    open_one = partitions.die_before_commit(0)
    partitions.write(1, 0, 1)
    partitions.forget_group(1)
    with pytest.raises(TimeoutError, match="could not be read"):
        partitions.clients.marker(partitions.key(1)).read(Patience(2))
    open_one.abort_transaction(30)
    partitions.write(1, 0, 1, 2, epoch=2)
    assert partitions.published() == [0, 1, 2]


def test_epoch_in_which_all_was_published_before_does_not_take_the_marker_back(partitions):
    partitions.write(1, 0, 1, 2)
    partitions.write(1, 0, epoch=2)
    partitions.write(1, 0, 1, 2, 3, epoch=3)
    assert partitions.published() == [0, 1, 2, 3]
