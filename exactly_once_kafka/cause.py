"""Why a transaction failed: librdkafka says it to whoever asks, and not always in the error at hand."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Collection, Iterator

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer

from exactly_once_kafka.errors import NO_SUCH_TOPIC

ONE_ANSWER = 5  # seconds
GONE = 5  # seconds for which a topic may not be known: not each broker hears at once of one that is new
ASK = 1  # second, from one look at the topics to the next
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
        if topic:
            cause = why_unknown(producer, topic, cause)
        which = f"topic {topic!r}" if topic else "a topic named in the column 'topic'"
        raise KafkaException(named(cause, f"WRITE to {which}", topic)) from error


def why_unknown(producer: Producer, topic: str, error: KafkaError) -> KafkaError:
    """Return what Kafka says of a topic that the client takes for none: it may not be there, or have no such name."""
    if error.code() in NO_SUCH_TOPIC:
        with contextlib.suppress(KafkaException):
            return producer.list_topics(topic, timeout=ONE_ANSWER).topics[topic].error or error
    return error


class Absence:
    """Notices that a topic is gone while a client waits for it: librdkafka would wait until all patience is spent."""

    def __init__(self, client: Producer | Consumer, topics: Collection[str]):
        self._client, self._topics = client, topics
        self._asked = time.monotonic()
        self._since: dict[str, float] = {}

    def look(self) -> None:
        """Raise KafkaException, which names the topic, if Kafka has not known one of them for GONE seconds."""
        now = time.monotonic()
        if now - self._asked < ASK:
            return
        for topic in self._topics:
            try:
                error = self._client.list_topics(topic, timeout=ASK).topics[topic].error
            except KafkaException:  # no answer
                continue
            if error is None or error.code() not in NO_SUCH_TOPIC:
                self._since.pop(topic, None)
            elif now - self._since.setdefault(topic, now) >= GONE:
                said = f"topic {topic!r} was there and is not any more: it was deleted, or made anew"
                raise KafkaException(KafkaError(error.code(), said))
        self._asked = time.monotonic()


def named(error: KafkaError, operation: str, topic: str | None = None) -> KafkaError:
    """Return the error with the topic in it; if Kafka said that somebody may not do something to it, with that."""
    if error.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED:
        return KafkaError(error.code(), f"not allowed to {operation}")
    if topic is None or any(form in error.str() for form in (f"{topic!r}", f" {topic} [")):
        return error
    return KafkaError(error.code(), f"topic {topic!r}: {error.str()}")


def _failure_of_transaction(producer: Producer) -> KafkaError | None:
    try:
        producer.begin_transaction()  # refused in any case, since one is open: with the reason, if that one has failed
    except KafkaException as answer:
        return None if answer.args[0].code() in NOT_TELLING else answer.args[0]
    return None
