"""A partition's writer does not wait for what is there already, nor give up for what is no fault of Kafka's."""

from __future__ import annotations

import time
import uuid
from types import SimpleNamespace
from typing import Any

import pyarrow
import pytest
from confluent_kafka.admin import AdminClient, NewTopic
from kafka.errors import (
    DuplicateSequenceNumberError,
    NoError,
    NotLeaderForPartitionError,
    OutOfOrderSequenceNumberError,
    UnknownTopicOrPartitionError,
)
from kafka.future import Future

from exactly_once_kafka.deadline import Deadline
from exactly_once_kafka.kafka_client import partition_writer
from exactly_once_kafka.kafka_client.open_transaction_repair import OpenTransactionRepair
from exactly_once_kafka.kafka_client.partition_writer import EncodedBatch, PartitionWriter, send
from exactly_once_kafka.kafka_client.record_batch import ProducerId, encode
from exactly_once_kafka.kafka_client.transaction_coordinator import Coordinator
from exactly_once_kafka.protocol import Marker
from labs.equipment.waiting import eventually


@pytest.fixture
def transaction(broker, topic):
    """A coordinator, and an epoch that it gave."""
    coordinator = Coordinator(uuid.uuid4().hex, {"bootstrap_servers": broker.bootstrap_servers}, topic(), 60_000)
    producer = OpenTransactionRepair(coordinator, None).fence(Deadline(60))
    yield coordinator, producer
    coordinator.end(producer, False, Deadline(60))


def one_row(producer: ProducerId) -> EncodedBatch:
    row = pyarrow.RecordBatch.from_pylist([{"value": b"a row"}])
    return EncodedBatch(encode(row, producer, 0, int(time.time() * 1000)), 1)


@pytest.mark.long
def test_rows_that_took_long_to_compute_are_not_taken_for_a_silent_kafka(transaction):
    coordinator, producer = transaction
    coordinator.partitions(coordinator.marker_topic, Deadline(60))
    writer = PartitionWriter(coordinator.cluster, coordinator.name, coordinator.marker_topic, 0)
    writer.add(one_row(producer))
    writer.heard -= 3600  # while the next rows were computed
    send(coordinator.cluster, [writer], 60, lambda: None)
    assert writer.acknowledged == 1


@pytest.mark.long
def test_an_answer_that_came_while_something_else_was_waited_for_is_taken_at_once(transaction):
    coordinator, producer = transaction
    writer = coordinator.begin_marker(Marker(0, "query", "{}"), producer, 0, Deadline(60))
    assert writer.idle > 0
    while not writer._answers[0].is_done:
        coordinator.cluster.wait(writer.idle)
    assert writer.idle == 0
    assert not writer.done
    writer.step()
    assert writer.done


@pytest.mark.bench
@pytest.mark.parametrize("partitions", [2, 0], ids=["made anew with fewer", "deleted"])
def test_partition_that_is_gone_is_not_waited_for(broker, transaction, topic, partitions):
    coordinator, producer = transaction
    to, admin = topic(partitions=3), AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    assert coordinator.partitions(to, Deadline(60)) == 3
    admin.delete_topics([to])[to].result(30)
    eventually(lambda: to not in admin.list_topics(timeout=5).topics, timeout=60)
    if partitions:
        admin.create_topics([NewTopic(to, partitions, 1)])[to].result(30)
    writer = PartitionWriter(coordinator.cluster, coordinator.name, to, 2)
    writer.add(one_row(producer))
    with pytest.raises(UnknownTopicOrPartitionError, match=rf"{to}-2 no longer exists"):
        send(coordinator.cluster, [writer], 60, lambda: None)


class Leader:
    """Stands for the cluster, and notes what was sent; the test answers it."""

    def __init__(self):
        self.produces, self.sent = self, list[tuple[bytes, Future]]()

    def follow(self, topic): ...

    def refresh_metadata(self): ...

    def has(self, topic, partition):
        return True

    def leader(self, topic, partition):
        return 0

    def add(self, node, transactional_id, topic, partition, content):
        self.sent.append((content, Future()))
        return self.sent[-1][1]


class Slow(Leader):
    """Takes four seconds for each answer, and answers one partition after the other."""

    def __init__(self, monkeypatch):
        super().__init__()
        self._now = 0.0
        monkeypatch.setattr(time, "monotonic", lambda: self._now)

    def is_throttled(self, node):
        return False

    def wait(self, seconds):
        unanswered = [each for each in self.sent if not each[1].is_done]
        if seconds and unanswered:
            self._now += 4
            reply([min(unanswered, key=lambda each: each[0])], NoError)


def test_leader_that_answers_for_one_partition_is_not_silent_about_another(monkeypatch):
    cluster: Any = Slow(monkeypatch)
    writers = [PartitionWriter(cluster, "id", topic, 0) for topic in ("a", "b")]
    for writer in writers:
        for n in range(4):
            writer.add(EncodedBatch(f"{writer.topic}{n}".encode(), records=1))
    send(cluster, writers, 10, lambda: None)
    assert [writer.acknowledged for writer in writers] == [4, 4]


def test_partition_that_nobody_leads_is_looked_up_again(monkeypatch):
    cluster: Any = Leader()
    looked = []
    monkeypatch.setattr(cluster, "leader", lambda *_: None)
    monkeypatch.setattr(cluster, "refresh_metadata", lambda: looked.append(True))
    writer = PartitionWriter(cluster, "id", "topic", 0)
    writer.add(EncodedBatch(b"0", records=1))
    writer.step()
    assert "no leader for topic-0" in str(writer.trouble)
    assert looked


def contents(sent):
    return [content for content, _ in sent]


def reply(sent, *errors):
    """Answer each of the requests."""
    for (_, future), error in zip(sent, errors, strict=True):
        future.success(SimpleNamespace(error_code=error.errno, error_message=None))


def test_five_at_most_are_under_way_and_after_a_refusal_all_are_sent_again_in_their_order(monkeypatch):
    monkeypatch.setattr(partition_writer, "FIRST_BACKOFF", 0.0)
    leader: Any = Leader()
    pieces = [EncodedBatch(b"%d" % n, records=1) for n in range(8)]
    writer = PartitionWriter(leader, "id", "topic", 0)
    for piece in pieces:
        writer.add(piece)
    writer.step()
    assert contents(leader.sent) == [b"0"], "the first one enrols the partition"
    reply(leader.sent, NoError)
    writer.step()
    assert contents(leader.sent[1:]) == [b"1", b"2", b"3", b"4", b"5"]
    _, *under_way = leader.sent
    reply(under_way[:4], NotLeaderForPartitionError, *[OutOfOrderSequenceNumberError] * 3)
    writer.step()
    assert len(leader.sent) == 6, "one is still under way, and might arrive behind what is sent again"
    reply(under_way[4:], OutOfOrderSequenceNumberError)
    writer.step()
    again = leader.sent[6:]
    assert contents(again) == contents(under_way)
    reply(again, *[NoError] * 5)
    writer.step()
    reply(leader.sent[11:], NoError, DuplicateSequenceNumberError)
    writer.step()
    assert writer.done
    assert writer.acknowledged == 8
