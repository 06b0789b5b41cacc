"""Read a result topic from its beginning to its present end, as a downstream consumer would."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from labs.evidence.audit import Result
from labs.pipeline.at_least_once import SINK_TOPIC


def read_results(
    bootstrap_servers: str, topic: str = SINK_TOPIC, isolation_level: str = "read_committed", timeout: float = 60
) -> list[Result]:
    """Return every result in the topic, by partition and offset.

    With "read_committed" the end is the last stable offset: nothing of an open or aborted transaction is
    returned. Raises TimeoutError if the end is not reached within `timeout` seconds without progress,
    KafkaException if the topic cannot be read, ValueError for a record that is not a result.
    """
    records = read_to_end(bootstrap_servers, topic, isolation_level, timeout)
    return sorted(map(as_result, records), key=lambda result: (result.partition, result.offset))


def read_to_end(bootstrap_servers: str, topic: str, isolation_level: str, timeout: float = 60) -> Iterator[Message]:
    """Yield every record of the topic that a reader of this isolation level can see now.

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


def as_result(message: Message) -> Result:
    """Decode one record of the sink topic. Raises ValueError if it is something else."""
    try:
        value = json.loads(message.value())
        headers = {key: (text or b"").decode() for key, text in message.headers() or ()}
        return Result(
            window_start=value["window_start"],
            ip=value["ip"],
            count=value["count"],
            batch_id=int(headers["batch_id"]) if "batch_id" in headers else None,
            attempt=headers.get("attempt"),
            batch_rows=int(headers["batch_rows"]) if "batch_rows" in headers else None,
            partition=message.partition(),
            offset=message.offset(),
        )
    except (ValueError, KeyError, TypeError) as error:
        at = f"{message.topic()}[{message.partition()}] offset {message.offset()}"
        raise ValueError(f"the record at {at} is not a result of the IP count: {message.value()!r:.80}") from error
