"""Why a transaction failed: librdkafka says it to whoever asks, and not always in the error at hand."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from confluent_kafka import KafkaError, KafkaException, Producer

NOT_TELLING = {KafkaError._STATE, KafkaError._NOT_CONFIGURED}  # the transaction is in order, or there is none


@contextlib.contextmanager
def true_cause(producer: Producer, topic: str | None) -> Iterator[None]:
    """Raise, for a KafkaException within the block, the one that made the producer's open transaction fail.

    Of a producer that was fenced, or may not write to the topic, rows are only said to be "purged", or that there
    was a "fatal error".
    """
    try:
        yield
    except KafkaException as error:
        cause = _failure_of_transaction(producer) or error.args[0]
        which = f"topic {topic!r}" if topic else "a topic named in the column 'topic'"
        raise KafkaException(named(cause, f"WRITE to {which}")) from error


def named(error: KafkaError, operation: str) -> KafkaError:
    """Return the error with the operation in it, if Kafka said that somebody may not do something to a topic."""
    if error.code() != KafkaError.TOPIC_AUTHORIZATION_FAILED:
        return error
    return KafkaError(error.code(), f"not allowed to {operation}")


def _failure_of_transaction(producer: Producer) -> KafkaError | None:
    try:
        producer.begin_transaction()  # refused in any case, since one is open: with the reason, if that one has failed
    except KafkaException as answer:
        return None if answer.args[0].code() in NOT_TELLING else answer.args[0]
    return None
