"""Record batches on their way to the leaders of their partitions: those for one leader go in one request.

A broker answers one request of a connection before it looks at the next. The first record of a transaction in a
partition takes it some milliseconds, for the coordinator has to know; those of one request wait for that together.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

from kafka.future import Future
from kafka.protocol.producer.produce import ProduceRequest

VERSION = 12  # of Produce: from here on, a leader enrols its partition in the transaction by itself (KIP-890)
BROKER_TIMEOUT = 30_000  # milliseconds for a leader to hear of its followers
MOST_BYTES = 16_000_000  # of a request, unless it has one partition: a broker refuses more than 100 MB by default
TOPIC = ProduceRequest.TopicProduceData
PARTITION = TOPIC.PartitionProduceData


class _Waiting(NamedTuple):
    content: bytes
    answer: Future


Request = dict[tuple[str, int], _Waiting]  # topic and partition; each is in a request at most once


class ProduceRequests:
    """Gathers record batches until `send`. `to_node` sends a request to a node and returns the future of its answer."""

    def __init__(self, to_node: Callable[[ProduceRequest, int], Future]):
        self._to_node = to_node
        self._requests: dict[tuple[int, str], list[Request]] = {}  # node, transactional id -> in their order

    def add(self, node: int, transactional_id: str, topic: str, partition: int, content: bytes) -> Future:
        """Return the future of the partition's part of the answer. What is added first is sent first."""
        requests = self._requests.setdefault((node, transactional_id), [])
        behind = max((n for n, each in enumerate(requests, 1) if (topic, partition) in each), default=0)
        request = next((each for each in requests[behind:] if _size(each) + len(content) <= MOST_BYTES), None)
        if request is None:
            requests.append(request := {})
        request[topic, partition] = _Waiting(content, Future())
        return request[topic, partition].answer

    def forget(self) -> None:
        """Leave out what was added and not sent yet."""
        self._requests = {}

    def send(self) -> None:
        """Send what was added since. A future fails at once if its request cannot be sent."""
        gathered, self._requests = self._requests, {}
        for (node, transactional_id), requests in gathered.items():
            for request in requests:
                sent = self._to_node(_produce(transactional_id, request), node)
                sent.add_callback(functools.partial(_answer, request))
                sent.add_errback(functools.partial(_fail, request))


def _size(request: Request) -> int:
    return sum(len(each.content) for each in request.values())


def _produce(transactional_id: str, request: Request) -> ProduceRequest:
    topics: dict[str, list[Any]] = {}
    for (topic, partition), waiting in request.items():
        topics.setdefault(topic, []).append(PARTITION(index=partition, records=waiting.content))
    return ProduceRequest(
        version=VERSION,
        transactional_id=transactional_id,
        acks=-1,
        timeout_ms=BROKER_TIMEOUT,
        topic_data=[TOPIC(name=topic, partition_data=partitions) for topic, partitions in topics.items()],
    )


def _answer(request: Request, value: Any) -> None:
    for topic in value.responses:
        for partition in topic.partition_responses:
            request.pop((topic.name, partition.index)).answer.success(partition)
    _fail(request, RuntimeError("the broker's answer leaves out a partition"))


def _fail(request: Request, error: BaseException) -> None:
    for each in request.values():
        each.answer.failure(error)
