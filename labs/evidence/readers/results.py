"""Read a result topic from its beginning to its end, as a downstream consumer would.

`read_results` is for whoever judges: it waits until nothing is undecided. `read_visible` does not.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import cast

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from labs.evidence.auditor.observed import Reading, Result
from labs.evidence.readers.decided import PATIENCE, SENTINEL, wait_until_decided
from labs.evidence.readers.transactions import settle
from labs.pipeline.records import SINK_TOPIC, parse_result_value

Headers = list[tuple[str, bytes | None]]  # as a consumer gets them


def read_results(
    bootstrap_servers: str,
    topic: str = SINK_TOPIC,
    isolation_level: str = "read_committed",
    timeout: float = 60,
    patience: float = PATIENCE,
) -> Reading:
    """Wait until every transaction in the topic is decided; then return every result, by partition and offset.

    A transaction that hangs is waited for `patience` seconds; the reading says in which partitions one does. With
    "read_uncommitted" nothing is waited for. Raises as `read_visible`.
    """
    committed = isolation_level == "read_committed"
    decided = wait_until_decided(bootstrap_servers, topic, patience) if committed else {}
    return Reading(read_visible(bootstrap_servers, topic, isolation_level, timeout), decided)


def read_visible(
    bootstrap_servers: str, topic: str = SINK_TOPIC, isolation_level: str = "read_committed", timeout: float = 60
) -> list[Result]:
    """Return the results that can be seen at this moment, by partition and offset: not what to judge a job by.

    With "read_committed" the end is the last stable offset: nothing of an open or aborted transaction is
    returned, nor what lies behind an open one. Raises TimeoutError if the end is not reached within `timeout`
    seconds without progress, KafkaException if the topic cannot be read, ValueError for a record that is not a
    result.
    """
    records = read_to_end(bootstrap_servers, topic, isolation_level, timeout)
    results = [as_result(record) for record in records if record.key() != SENTINEL]
    return sorted(results, key=lambda result: (result.partition, result.offset))


def readable_sentinels(bootstrap_servers: str, topic: str) -> set[int]:
    """Return the partitions whose sentinel a read_committed reader comes to. Raises as `read_to_end`."""
    records = read_to_end(bootstrap_servers, topic, "read_committed")
    return {position(record)[0] for record in records if record.key() == SENTINEL}


def read_committed(bootstrap_servers: str, topic: str) -> list[Message]:
    """Wait until what is decided can be seen, then return the topic's committed records.

    What lies behind an open transaction is not waited for. Raises as `settle` and `read_to_end`.
    """
    settle(bootstrap_servers)
    return list(read_to_end(bootstrap_servers, topic, "read_committed"))


def read_to_end(bootstrap_servers: str, topic: str, isolation_level: str, timeout: float = 60) -> Iterator[Message]:
    """Yield every record of the topic that a reader of this isolation level can see now.

    What was committed a moment ago need not be among them: Kafka answers a commit before every partition knows of it.
    Raises KafkaException if the topic cannot be read, TimeoutError if its end is not reached within `timeout`
    seconds without progress.
    """
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap_servers,
            "group.id": "labs-reader",  # required by the library; nothing is committed and nobody joins
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            "isolation.level": isolation_level,
            "enable.partition.eof": True,
            "fetch.wait.max.ms": 10,  # the end of the log is known at once, and not half a second later
            "log_level": 0,
        }
    )
    try:
        known = consumer.list_topics(topic, timeout=timeout).topics[topic]
        if known.error:
            raise KafkaException(known.error)
        reading = set(known.partitions)
        consumer.assign([TopicPartition(topic, partition, 0) for partition in reading])
        deadline = time.monotonic() + timeout
        while reading:
            messages = consumer.consume(10_000, timeout=0.1)
            for message in messages:
                error = message.error()
                if error is None:
                    yield message
                elif error.code() == KafkaError._PARTITION_EOF:
                    reading.discard(message.partition())
                elif not error.retriable():
                    raise KafkaException(error)
            if messages:
                deadline = time.monotonic() + timeout
            elif time.monotonic() > deadline:
                raise TimeoutError(f"partitions {sorted(reading)} of {topic} could not be read to their end")
    finally:
        consumer.close()


def position(message: Message) -> tuple[int, int]:
    """Return partition and offset, which every message has that a consumer gets."""
    return cast(int, message.partition()), cast(int, message.offset())


def as_result(message: Message) -> Result:
    """Decode one record of the sink topic. Raises ValueError if it is something else."""
    try:
        headers = {key: (text or b"").decode() for key, text in cast(Headers, message.headers() or [])}
        return Result(
            *parse_result_value(message.value()),
            batch_id=int(headers["batch_id"]) if "batch_id" in headers else None,
            attempt=headers.get("attempt"),
            batch_rows=int(headers["batch_rows"]) if "batch_rows" in headers else None,
            partition=message.partition(),
            offset=message.offset(),
        )
    except ValueError as error:
        at = f"{message.topic()}[{message.partition()}] offset {message.offset()}"
        raise ValueError(f"the record at {at}: {error}") from error
