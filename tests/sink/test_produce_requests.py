"""Record batches for one leader share a request; those of one partition keep their order; each gets its own answer."""

from __future__ import annotations

import pytest
from kafka.future import Future
from kafka.protocol.producer.produce import ProduceResponse

from exactly_once_kafka.kafka_client import cluster
from exactly_once_kafka.kafka_client.cluster import ProduceRequests

TOPIC = ProduceResponse.TopicProduceResponse
PARTITION = TOPIC.PartitionProduceResponse


class Wire:
    """Keeps what is sent, and the future of its answer."""

    def __init__(self) -> None:
        self.sent: list[tuple[int, list[tuple[str, int, bytes]], Future]] = []

    def send(self, request, node) -> Future:
        content = [(t.name, p.index, p.records) for t in request.topic_data for p in t.partition_data]
        self.sent.append((node, content, Future()))
        return self.sent[-1][2]


@pytest.fixture
def wire() -> Wire:
    return Wire()


def test_what_goes_to_one_leader_goes_in_one_request(wire):
    requests = ProduceRequests(wire.send)
    for node, topic, partition in ((1, "orders", 0), (2, "orders", 1), (1, "marker", 0), (1, "orders", 2)):
        requests.add(node, "sink", topic, partition, b"rows")
    assert not wire.sent
    requests.send()
    by_node = {node: [(topic, partition) for topic, partition, _ in content] for node, content, _ in wire.sent}
    assert by_node == {1: [("orders", 0), ("orders", 2), ("marker", 0)], 2: [("orders", 1)]}
    requests.send()
    assert len(wire.sent) == 2


def test_a_partition_is_in_a_request_once_and_its_batches_keep_their_order(wire):
    requests = ProduceRequests(wire.send)
    for partition, content in ((0, b"first"), (0, b"second"), (1, b"other"), (0, b"third")):
        requests.add(1, "sink", "orders", partition, content)
    requests.send()
    assert [content for _, content, _ in wire.sent] == [
        [("orders", 0, b"first"), ("orders", 1, b"other")],
        [("orders", 0, b"second")],
        [("orders", 0, b"third")],
    ]


def test_transactions_of_two_names_never_share_a_request(wire):
    requests = ProduceRequests(wire.send)
    requests.add(1, "one", "orders", 0, b"rows")
    requests.add(1, "two", "orders", 1, b"rows")
    requests.send()
    assert [len(content) for _, content, _ in wire.sent] == [1, 1]


def test_each_partition_hears_its_own_answer(wire):
    requests = ProduceRequests(wire.send)
    taken, refused, left_out = (requests.add(1, "sink", "orders", partition, b"rows") for partition in range(3))
    requests.send()
    [(_, _, answer)] = wire.sent
    codes = ((1, 47), (0, 0))  # in no order
    parts = [PARTITION(index=partition, error_code=code) for partition, code in codes]
    answer.success(ProduceResponse(version=12, responses=[TOPIC(name="orders", partition_responses=parts)]))
    assert (taken.value.error_code, refused.value.error_code) == (0, 47)
    assert "leaves out a partition" in str(left_out.exception)


def test_all_of_a_request_fail_with_it(wire):
    requests = ProduceRequests(wire.send)
    answers = [requests.add(1, "sink", "orders", partition, b"rows") for partition in range(2)]
    requests.send()
    wire.sent[0][2].failure(ConnectionError("cut"))
    assert [str(answer.exception) for answer in answers] == ["cut", "cut"]


def test_what_was_forgotten_is_not_sent(wire):
    requests = ProduceRequests(wire.send)
    requests.add(1, "sink", "orders", 0, b"of a task that failed")
    requests.forget()
    requests.send()
    assert not wire.sent


def test_no_request_is_larger_than_a_broker_takes_and_the_order_within_a_partition_holds(wire, monkeypatch):
    monkeypatch.setattr(cluster, "MOST_BYTES", 10)
    requests = ProduceRequests(wire.send)
    given = [(0, b"a" * 6), (1, b"b" * 6), (1, b"c" * 2), (2, b"d" * 4), (0, b"e" * 20), (0, b"f")]
    for partition, content in given:
        requests.add(1, "sink", "orders", partition, content)
    requests.send()
    sizes = [[len(content) for _, _, content in sent] for _, sent, _ in wire.sent]
    assert all(sum(each) <= 10 or len(each) == 1 for each in sizes), sizes
    for partition in range(3):
        sent = [content for _, parts, _ in wire.sent for _, index, content in parts if index == partition]
        assert sent == [content for index, content in given if index == partition]
