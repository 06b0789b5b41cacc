"""Wait until what lies in a topic is decided: before that, nobody can judge what a reader sees.

A read_committed reader gets no further than the last stable offset. What was committed behind an open transaction
is hidden until that transaction ends, and visible a moment later. So wait first, then read, then judge.
"""

from __future__ import annotations

import time

from confluent_kafka import IsolationLevel, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec

# The lab's transactions time out after 60 s; brokers look for those that have every 10 s.
PATIENCE = 90.0  # seconds
ANSWER = 10.0  # seconds for one answer of Kafka
BETWEEN = 0.02  # seconds
SENTINEL = b"sentinel"  # the key of a record that is no result and was written last of all


def wait_until_decided(bootstrap_servers: str, topic: str, patience: float = PATIENCE) -> dict[int, bool]:
    """Wait until every transaction that has written to the topic by now is committed or aborted, and visibly so.

    Return partition -> whether that is so. It is not where a transaction has hung for `patience` seconds.
    Raises KafkaException if Kafka does not tell.
    """
    kafka = AdminClient({"bootstrap.servers": bootstrap_servers, "log_level": 0})
    deadline = time.monotonic() + patience
    ends: dict[int, int] = {}
    partitions = partitions_of(kafka, topic)
    while True:
        try:
            ends = ends or _latest(kafka, partitions, IsolationLevel.READ_UNCOMMITTED)
            stable = _latest(kafka, partitions, IsolationLevel.READ_COMMITTED)
        except KafkaException:  # such as a leader that has just become one
            if time.monotonic() > deadline:
                raise
        else:
            decided = {partition: stable[partition] >= end for partition, end in ends.items()}
            if all(decided.values()) or time.monotonic() > deadline:
                return decided
        time.sleep(BETWEEN)


def write_sentinels(bootstrap_servers: str, topic: str) -> None:
    """Write a sentinel to each partition, after everything else. Raises KafkaException, TimeoutError."""
    settings = {"bootstrap.servers": bootstrap_servers, "acks": "all", "log_level": 0}
    partitions = partitions_of(AdminClient({"bootstrap.servers": bootstrap_servers, "log_level": 0}), topic)
    producer = Producer(settings)
    for at in partitions:
        producer.produce(topic, b"", SENTINEL, at.partition)
    if left := producer.flush(60):
        raise TimeoutError(f"{left} of {len(partitions)} sentinels of {topic} were not written within 60 s")


def partitions_of(kafka: AdminClient, topic: str) -> list[TopicPartition]:
    """Return the topic's partitions. Raises KafkaException if there is no such topic."""
    known = kafka.list_topics(topic, timeout=60).topics[topic]
    if known.error:
        raise KafkaException(known.error)
    return [TopicPartition(topic, partition) for partition in sorted(known.partitions)]


def _latest(kafka: AdminClient, partitions: list[TopicPartition], level: IsolationLevel) -> dict[int, int]:
    """Return per partition the last stable offset or, with READ_UNCOMMITTED, the high watermark."""
    latest = {at: OffsetSpec.latest() for at in partitions}
    answers = kafka.list_offsets(latest, isolation_level=level, request_timeout=ANSWER)
    return {at.partition: answer.result().offset for at, answer in answers.items()}
