"""Readers that follow a result topic from its beginning, as far as one looks: what is visible, and to whom."""

from __future__ import annotations

from confluent_kafka import Consumer, TopicPartition

from labs.equipment.topics import end_offsets
from labs.evidence.auditor.observed import Key
from labs.evidence.readers.decided import SENTINEL
from labs.evidence.readers.results import as_result


class Tail:
    """Which results there are so far, for a reader of this isolation level. It reads only when `read` is called."""

    def __init__(self, bootstrap_servers: str, topic: str, isolation_level: str):
        self.distinct: set[Key] = set()  # (window start in epoch milliseconds, IP)
        self._consumer = _consumer(bootstrap_servers, topic, isolation_level)

    def read(self, seconds: float) -> None:
        """Read what has come; wait at most so long for the first of it. Raises ValueError for what is no result."""
        message = self._consumer.poll(seconds)
        while message is not None:
            if message.error() is None and message.key() != SENTINEL:
                result = as_result(message)
                self.distinct.add((result.window_start, result.ip))
            message = self._consumer.poll(0)

    def close(self) -> None:
        """Close the consumer."""
        self._consumer.close()


class CommittedCount:
    """How many committed records there are so far. None is looked into: who times a fast writer must not slow it down.

    `Tail` reads some 90,000 a second and takes a core for it; this one ten times as many.
    """

    def __init__(self, bootstrap_servers: str, topic: str):
        self.records = 0
        self._consumer = _consumer(bootstrap_servers, topic, "read_committed")

    def read(self, seconds: float) -> None:
        """Count what has come; wait at most so long for more."""
        messages = self._consumer.consume(10_000, seconds)
        self.records += sum(message.error() is None for message in messages)

    def close(self) -> None:
        """Close the consumer."""
        self._consumer.close()


def _consumer(bootstrap_servers: str, topic: str, isolation_level: str) -> Consumer:
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap_servers,
            "group.id": "labs-tail",  # required by the library; nothing is committed and nobody joins
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            "isolation.level": isolation_level,
            "fetch.wait.max.ms": 10,
            "fetch.queue.backoff.ms": 10,  # by default a reader that is 100,000 records ahead pauses for a second
            "log_level": 0,
        }
    )
    consumer.assign([TopicPartition(topic, partition, 0) for partition in end_offsets(bootstrap_servers, topic)])
    return consumer
