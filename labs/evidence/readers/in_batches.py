"""Batches of records from a consumer: what a program that reads on works through, until the end of the topic."""

from __future__ import annotations

from collections.abc import Iterator

from confluent_kafka import Consumer, KafkaError, KafkaException, Message

PATIENCE = 60.0  # seconds without a record and without an end


def in_batches(consumer: Consumer, size: int, patience: float = PATIENCE) -> Iterator[list[Message]]:
    """Yield lists of `size` records of the one partition that the consumer is assigned, up to its present end.

    The last one may be shorter. The consumer needs `enable.partition.eof`. Raises TimeoutError after `patience`
    seconds without a record, KafkaException.
    """
    batch: list[Message] = []
    while True:
        message = consumer.poll(patience)
        if message is None:
            raise TimeoutError(f"no record and no end of the topic within {patience:g} s: is the broker alive?")
        if error := message.error():
            if error.code() == KafkaError._PARTITION_EOF:
                break
            if not error.retriable():
                raise KafkaException(error)
            continue
        batch.append(message)
        if len(batch) == size:
            yield batch
            batch = []
    if batch:
        yield batch
