"""The topic that holds the markers. It is compacted, so Kafka never deletes a sink's last marker.

By default each sink has a topic of its own. A reader of the marker waits for the open transactions in the topic; in a
shared topic it also waits for those of the other sinks.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import Future
from concurrent.futures import TimeoutError as NotYet
from typing import Any, TypeVar

from confluent_kafka import KafkaError, KafkaException, TopicCollection
from confluent_kafka.admin import (
    AdminClient,
    ConfigResource,
    NewTopic,
    ResourceType,
    TopicDescription,
)

from exactly_once_kafka.deadline import SLICE, Deadline
from exactly_once_kafka.errors import NO_ANSWER_YET, NO_SUCH_TOPIC, Refusal, is_permanent, with_operation
from exactly_once_kafka.names import check_name, check_topic

SETTINGS = {"cleanup.policy": "compact", "segment.bytes": str(1 << 20)}  # Kafka never compacts the newest segment

NOT_ALLOWED = {KafkaError.TOPIC_AUTHORIZATION_FAILED, KafkaError.CLUSTER_AUTHORIZATION_FAILED}

# What to do if Kafka does not create the topic; {create} is the command that does it by hand.
BY_HAND = {
    KafkaError.TOPIC_EXCEPTION: (
        "Kafka treats names that differ only in '.' and '_' as one: give the sink a marker_topic of another name"
    ),
    KafkaError.INVALID_REPLICATION_FACTOR: (
        "Start as many brokers as default.replication.factor says, or create it yourself, with as many replicas as "
        "there are brokers: {create} --replication-factor 1"
    ),
    **dict.fromkeys(NOT_ALLOWED, "Allow this user to CREATE it, or have it created: {create}"),
}
OTHERWISE = (
    "Create it yourself, with the settings that Kafka accepts (cleanup.policy=compact is necessary): {create}; or "
    "give the sink a marker_topic that exists"
)

# Seconds to wait for an answer, at first and at most: after a timeout, the next request waits twice as long.
FIRST_ANSWER, LAST_ANSWER = 2.0, 60.0

Answer = TypeVar("Answer")


class MarkerTopicUnsafe(RuntimeError):
    """The marker's topic cannot be created, is not compacted, or cannot be checked; the message says what to do."""


def topic_for(name: str, given: str | None) -> str:
    """Return the name of the marker's topic. Raises ValueError if the sink's name or the topic's is not valid."""
    check_name(name)
    if given is not None:
        check_topic("marker_topic", given)
        return given
    topic = f"{name}-marker"
    try:
        check_topic("the marker's topic", topic)
    except ValueError as error:
        raise ValueError(f"{error}. Choose another name, or give the sink a marker_topic") from None
    return topic


class MarkerTopic:
    """Creates and checks one topic. Raises KafkaException, TimeoutError, and whatever `deadline` raises."""

    def __init__(self, name: str, connection: dict[str, Any], refusal: Refusal):
        self.name = name
        self._connection, self._refusal = connection, refusal
        self._client: AdminClient | None = None

    def disconnect(self) -> None:
        """Close the connection; the next request opens a new one."""
        self._client = None
        self._refusal.let_in()  # forget the errors of the old connection

    def id(self, deadline: Deadline) -> str | None:
        """Return the topic's id, or None if there is no topic. A topic that is created again has another id.

        Raises MarkerTopicUnsafe.
        """
        if self._client is not None:
            self._client.poll(0)  # tells of the errors since the last request
        self._refusal.ask_again()
        while (found := self._described(deadline)) is not None:
            try:
                self._check(deadline)
                return found
            except KafkaException as error:  # the broker does not know the topic yet, or it was just deleted
                if error.args[0].code() not in NO_SUCH_TOPIC or not deadline.has_time():
                    raise
                time.sleep(SLICE)
        return None

    def _described(self, deadline: Deadline) -> str | None:
        try:
            description = self._answer(self._describe, deadline)
        except KafkaException as error:
            if error.args[0].code() in NO_SUCH_TOPIC:
                return None
            operation = f"READ and WRITE topic {self.name!r}"
            raise KafkaException(with_operation(error.args[0], operation, self.name)) from error
        return str(description.topic_id)

    def _describe(self, seconds: float) -> Future[TopicDescription]:
        return self._admin().describe_topics(TopicCollection([self.name]), request_timeout=seconds)[self.name]

    def create(self, deadline: Deadline) -> str:
        """Create the topic, unless it exists by now, and return its id. Raises MarkerTopicUnsafe."""
        topic = NewTopic(self.name, 1, -1, config=SETTINGS)
        try:
            self._answer(
                lambda seconds: self._admin().create_topics([topic], request_timeout=seconds)[self.name], deadline
            )
        except KafkaException as error:
            if error.args[0].code() in NOT_ALLOWED or (is_permanent(error.args[0]) and not self._refusal.error):
                raise MarkerTopicUnsafe(self._why_not_made(error.args[0])) from error
            if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
                raise
        while (made := self.id(deadline)) is None:  # a broker may not know the new topic yet
            if not deadline.has_time():
                raise TimeoutError(f"topic {self.name!r} was created, but no broker shows it yet")
        return made

    def _why_not_made(self, error: KafkaError) -> str:
        servers, settings = self._connection["bootstrap.servers"], [f"{key}={of}" for key, of in SETTINGS.items()]
        create = f"kafka-topics.sh --bootstrap-server {servers} --create --topic {self.name} --partitions 1"
        create = " --config ".join([create, *settings])
        to_do = BY_HAND.get(error.code(), OTHERWISE).format(create=create)
        return (
            f"there is no topic {self.name!r} for the marker, and Kafka does not create it with 1 partition, "
            f"{', '.join(settings)} ({error.str()}). {to_do}"
        )

    def _check(self, deadline: Deadline) -> None:
        asked = ConfigResource(ResourceType.TOPIC, self.name)
        try:
            settings = self._answer(
                lambda seconds: self._admin().describe_configs([asked], request_timeout=seconds)[asked], deadline
            )
        except KafkaException as error:
            if error.args[0].code() in NOT_ALLOWED:
                raise MarkerTopicUnsafe(
                    f"the sink cannot see whether topic {self.name!r} is compacted: allow this user DESCRIBE_CONFIGS "
                    "on it"
                ) from error
            raise
        policy = settings["cleanup.policy"].value
        if policy != "compact":
            raise MarkerTopicUnsafe(
                f"topic {self.name!r} has cleanup.policy={policy} and would lose the marker in time: give the sink a "
                "marker_topic of its own, which it creates, or set cleanup.policy=compact"
            )

    def _answer(self, ask: Callable[[float], Future[Answer]], deadline: Deadline) -> Answer:
        """Repeat the request until Kafka answers, each time with a longer timeout.

        An answer may be slow, and a request may be lost: librdkafka looks for the controller only once, and a broker
        that has just started may not know the controller.
        """
        seconds = FIRST_ANSWER
        while True:
            try:
                return self._wait(ask(seconds), deadline)
            except KafkaException as error:
                refused, said = self._refusal.error, error.args[0]
                if refused or said.code() not in NO_ANSWER_YET:
                    raise KafkaException(refused or said) from error
                silent = said.code() == KafkaError._TIMED_OUT
                if not deadline.has_time():
                    if not silent:
                        raise
                    raise TimeoutError(
                        f"Kafka gave no answer about topic {self.name!r} for {deadline.elapsed:.0f} s"
                    ) from error
                if silent:
                    seconds = min(2 * seconds, LAST_ANSWER)

    def _wait(self, future: Future[Answer], deadline: Deadline) -> Answer:
        while True:
            try:
                answer = future.result(SLICE)
            except NotYet as error:
                self._admin().poll(0)  # calls error_cb
                if self._refusal.error or not deadline.has_time():
                    raise KafkaException(KafkaError(KafkaError._TIMED_OUT)) from error
            else:
                self._refusal.let_in()
                return answer

    def _admin(self) -> AdminClient:
        if self._client is None:
            self._client = AdminClient(self._connection)
        return self._client
