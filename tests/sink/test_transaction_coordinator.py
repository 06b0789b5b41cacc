"""What the model of the sink by executors takes for granted: which epoch Kafka gives, to whom, and to whom none."""

from __future__ import annotations

import random
import socket
import uuid
from typing import Any

import pyarrow
import pytest
from confluent_kafka import KafkaException
from kafka.errors import InvalidProducerEpochError

from exactly_once_kafka.deadline import Deadline
from exactly_once_kafka.executors.write_task import WriteTask
from exactly_once_kafka.kafka_client import cluster as cluster_module
from exactly_once_kafka.kafka_client.cluster import Cluster
from exactly_once_kafka.kafka_client.open_transaction_repair import OpenTransactionRepair
from exactly_once_kafka.kafka_client.record_batch import ProducerId
from exactly_once_kafka.kafka_client.settings import Encoding
from exactly_once_kafka.kafka_client.transaction_coordinator import Coordinator
from exactly_once_kafka.protocol import Marker
from labs.equipment.topics import create_topic
from labs.evidence.readers.results import read_committed
from labs.evidence.readers.transactions import wait_until_ended

pytestmark = pytest.mark.long

PARTITIONS, ROWS = 4, 100
LAST_EPOCH = 32766  # that Kafka gives to a producer
VALUES = [str(number).encode() for number in range(ROWS)]


class Sink:
    """A transactional id, and a topic of its own to write to."""

    def __init__(self, servers: str, timeout_ms: int = 60_000):
        self.servers, self.name = servers, f"coordinator-{uuid.uuid4().hex[:8]}"
        create_topic(servers, self.name, PARTITIONS)
        connection = {"bootstrap_servers": servers}
        self.coordinator = Coordinator(self.name, connection, self.name, timeout_ms)

    def fence(self) -> ProducerId:
        return OpenTransactionRepair(self.coordinator, self.name).fence(Deadline(60))

    def write(self, producer: ProducerId) -> dict[int, int]:
        """Write ROWS rows, and return how many were acknowledged by which partition."""
        coordinator, name = self.coordinator, self.name
        task = WriteTask(coordinator.connection, Encoding(), name, producer, name, [], 60, 0, 1, PARTITIONS)
        rows = pyarrow.RecordBatch.from_pydict({"key": VALUES, "value": VALUES})
        report = task.write_all(coordinator.cluster, iter([rows]))
        assert report.rows == ROWS
        return {partition: records for _, partition, records in report.written}

    def end(self, producer: ProducerId, committed: bool) -> ProducerId:
        return self.coordinator.end(producer, committed, Deadline(60))

    def visible(self) -> list[int]:
        return sorted(int(m.value() or b"") for m in read_committed(self.servers, self.name) if m.key() in VALUES)


@pytest.fixture
def sink(broker) -> Sink:
    return Sink(broker.bootstrap_servers)


def test_address_that_never_answers_does_not_use_up_the_patience(broker, topic, monkeypatch):
    """A host that is switched off says nothing, not even no; kafka-python would wait for its answer till the end."""
    name = topic()
    with socket.create_server(("127.0.0.1", 0)) as silent:
        chosen = [f"127.0.0.1:{silent.getsockname()[1]}", broker.bootstrap_servers]
        cluster, asked = Cluster({"bootstrap_servers": chosen}), list[Any]()

        def the_silent_one_first(nodes):
            asked.append(next(each for each in nodes if each.port == int(chosen[bool(asked)].rpartition(":")[2])))
            return asked[-1]

        monkeypatch.setattr(cluster_module, "ONE_ADDRESS", 1)
        monkeypatch.setattr(random, "choice", the_silent_one_first)
        assert cluster.partitions(name, Deadline(60)) == 1
        assert [each.port for each in asked][:2] == [int(each.rpartition(":")[2]) for each in chosen]
        cluster.close()


@pytest.mark.parametrize("committed", [True, False])
def test_each_end_gives_the_next_epoch_and_answers_the_same_when_it_is_asked_for_again(sink, committed):
    first = sink.fence()
    sink.write(first)
    following = sink.end(first, committed)
    assert following == (first.id, first.epoch + 1)
    assert sink.end(first, committed) == following
    assert sink.visible() == [*range(ROWS)] * committed


def test_what_is_written_again_after_an_abort_is_there_once(sink):
    first = sink.fence()
    sink.write(first)
    again = sink.end(first, False)
    written = sink.write(again)
    marking = sink.coordinator.begin_marker(Marker(0, "q", "{}"), again, written[0], Deadline(60))
    sink.coordinator.await_marker(marking, Deadline(60))
    sink.end(again, True)
    assert sink.visible() == [*range(ROWS)]


def test_abort_after_kafkas_own_is_answered_with_the_epoch_that_gave(broker):
    sink = Sink(broker.bootstrap_servers, timeout_ms=1000)
    first = sink.fence()
    sink.write(first)
    wait_until_ended(sink.servers, sink.name)
    again = sink.end(first, False)
    assert again == (first.id, first.epoch + 1)
    sink.write(again)
    sink.end(again, True)
    assert sink.visible() == [*range(ROWS)]


@pytest.mark.parametrize("writing", [True, False], ids=["open", "nothing open"])
def test_abort_of_a_driver_that_a_newer_one_has_fenced_gives_no_epoch(sink, writing):
    older = sink.fence()
    if writing:
        sink.write(older)
    newer = sink.fence()
    with pytest.raises(KafkaException, match="newer producer"):
        sink.end(older, False)
    sink.write(newer)
    with pytest.raises(KafkaException, match="newer producer"):
        sink.end(older, False)
    sink.end(newer, True)
    assert sink.visible() == [*range(ROWS)]


@pytest.mark.soak  # 32,766 epochs have to be taken first
def test_epochs_that_are_used_up_are_followed_by_another_id_and_their_last_one_is_refused(sink):
    last = sink.fence()
    while last.epoch < LAST_EPOCH:
        last = sink.fence()
    sink.write(last)
    following = sink.end(last, True)
    assert following.id != last.id
    assert following.epoch == 0
    assert sink.end(last, True) == following
    with pytest.raises(InvalidProducerEpochError):
        sink.write(last)
    sink.write(following)
    with pytest.raises(KafkaException, match="not currently assigned"):
        sink.end(last, True)
    assert sink.end(following, True) == (following.id, 1)
    assert sink.visible() == sorted([*range(ROWS)] * 2)
