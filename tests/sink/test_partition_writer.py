"""A partition's writer does not wait for what is there already, nor give up for what is no fault of Kafka's."""

from __future__ import annotations

import uuid

import pytest

from exactly_once_kafka.batch import Marker
from exactly_once_kafka.executors.coordinator import Coordinator
from exactly_once_kafka.executors.encoding import Encoding
from exactly_once_kafka.executors.partition_writer import PartitionWriter, send
from exactly_once_kafka.patience import Patience


@pytest.fixture
def transaction(broker, topic):
    """A coordinator, and an epoch that it gave."""
    coordinator = Coordinator(
        uuid.uuid4().hex, {"bootstrap_servers": broker.bootstrap_servers}, Encoding(), topic(), 60_000
    )
    producer = coordinator.fence(Patience(60))
    yield coordinator, producer
    coordinator.end(producer, False, Patience(60))


def test_rows_that_took_long_to_compute_are_not_taken_for_a_silent_kafka(transaction):
    coordinator, producer = transaction
    coordinator.partitions(coordinator.marker_topic, Patience(60))
    writer = PartitionWriter(coordinator.cluster, coordinator.name, coordinator.marker_topic, 0)
    writer.add(coordinator.encoded(Marker(0, "query", "{}"), producer, 0))
    writer.heard -= 3600  # while the next rows were computed
    send(coordinator.cluster, [writer], 60, lambda: None)
    assert writer.acknowledged == 1


def test_an_answer_that_came_while_something_else_was_waited_for_is_taken_at_once(transaction):
    coordinator, producer = transaction
    writer = coordinator.marking(coordinator.encoded(Marker(0, "query", "{}"), producer, 0), Patience(60))
    assert writer.idle > 0
    while not writer._answers[0].is_done:
        coordinator.cluster.wait(writer.idle)
    assert writer.idle == 0
    assert not writer.done
    writer.step()
    assert writer.done
