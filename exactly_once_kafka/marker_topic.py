"""The topic that holds the markers: it is compacted, so what was committed last is never forgotten.

One topic for each sink, by default: a reader of the marker waits until all that was begun before in the partition is
decided, and who shares a topic waits for the others' transactions too.
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

from exactly_once_kafka.cause import named
from exactly_once_kafka.errors import NO_SUCH_TOPIC, is_permanent
from exactly_once_kafka.names import check_name, check_topic
from exactly_once_kafka.patience import SLICE, Patience

SETTINGS = {"cleanup.policy": "compact", "segment.bytes": str(1 << 20)}  # what is compacted is what is in old segments

# A coordinator or leader is being made or has moved to another broker; or a transaction on an old marker is
# undecided; or nothing was heard.
NO_ANSWER_YET = {
    KafkaError._TIMED_OUT,
    KafkaError.NOT_COORDINATOR,
    KafkaError.COORDINATOR_NOT_AVAILABLE,
    KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
    KafkaError.UNSTABLE_OFFSET_COMMIT,
    KafkaError.NOT_LEADER_FOR_PARTITION,
    KafkaError.LEADER_NOT_AVAILABLE,
    KafkaError.REQUEST_TIMED_OUT,
    KafkaError._TRANSPORT,
    KafkaError._ALL_BROKERS_DOWN,
}
NO_ENTRY = {KafkaError._AUTHENTICATION, KafkaError._SSL, KafkaError._RESOLVE}
NOT_ALLOWED = {KafkaError.TOPIC_AUTHORIZATION_FAILED, KafkaError.CLUSTER_AUTHORIZATION_FAILED}

# What to do where Kafka does not create the topic; {create} is the command that does it by hand.
BY_HAND = {
    KafkaError.TOPIC_EXCEPTION: (
        "To Kafka, names that differ in '.' and '_' alone are one: give the sink a marker_topic of another name"
    ),
    KafkaError.INVALID_REPLICATION_FACTOR: (
        "Start as many brokers as default.replication.factor says, or create it yourself, with as many replicas as "
        "there are brokers: {create} --replication-factor 1"
    ),
    **dict.fromkeys(
        (KafkaError.TOPIC_AUTHORIZATION_FAILED, KafkaError.CLUSTER_AUTHORIZATION_FAILED),
        "Allow this user to CREATE it, or have it created: {create}",
    ),
}
OTHERWISE = (
    "Create it yourself, with those settings that Kafka takes (cleanup.policy=compact there must be): {create}; or "
    "give the sink a marker_topic that is there"
)

# Seconds for an answer, at first and at most: after a silence, the next question waits twice as long.
FIRST_ANSWER, LAST_ANSWER = 2.0, 60.0

Answer = TypeVar("Answer")


class Forgetful(RuntimeError):
    """The topic cannot be made, or would forget the marker for all that is known; the message says what to do."""


def topic_for(name: str, given: str | None) -> str:
    """Return the marker's topic. Raises ValueError if `name` is none, or there is no such topic."""
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


class Refusal:
    """Why no connection is made, which a timeout does not say: `note` is a client's `error_cb`.

    It stands alone, for a client and its callback hold each other: whatever else the callback led to would, when it is
    no longer used, stay with the client's threads until Python looks for such circles.
    """

    def __init__(self) -> None:
        self._heard: KafkaError | None = None
        self._all_down = False

    @property
    def error(self) -> KafkaError | None:
        """Why Kafka lets nobody in, or None. One address that leads nowhere is no reason while another may do."""
        return self._heard if self._all_down else None

    def note(self, error: KafkaError) -> None:
        if error.code() in NO_ENTRY:
            self._heard = error
        elif error.code() == KafkaError._ALL_BROKERS_DOWN:
            self._all_down = True

    def ask_again(self) -> None:
        """Forget why nobody was let in before; librdkafka tries again, and tells again."""
        self._heard = None

    def let_in(self) -> None:
        """Note that a broker has answered."""
        self._heard, self._all_down = None, False


class MarkerTopic:
    """Looks after one topic. Raises KafkaException, TimeoutError, and whatever `patience` raises."""

    def __init__(self, name: str, connection: dict[str, Any], refusal: Refusal):
        self.name = name
        self._connection, self._refusal = connection, refusal
        self._client: AdminClient | None = None

    def rest(self) -> None:
        """Give up the connection; who asks again opens another."""
        self._client = None
        self._refusal.let_in()  # what it heard was told to the old one

    def id(self, patience: Patience) -> str | None:
        """Return what tells this topic from another one of its name, or None if there is none. Raises Forgetful."""
        self._refusal.ask_again()
        while (found := self._described(patience)) is not None:
            try:
                self._check(patience)
                return found
            except KafkaException as error:  # a broker that has not heard of it yet, or that it was deleted just now
                if error.args[0].code() not in NO_SUCH_TOPIC or not patience.lasts():
                    raise
                time.sleep(SLICE)
        return None

    def _described(self, patience: Patience) -> str | None:
        try:
            description = self._answer(self._describe, patience)
        except KafkaException as error:
            if error.args[0].code() in NO_SUCH_TOPIC:
                return None
            raise KafkaException(named(error.args[0], f"READ and WRITE topic {self.name!r}", self.name)) from error
        return str(description.topic_id)

    def _describe(self, seconds: float) -> Future[TopicDescription]:
        return self._admin().describe_topics(TopicCollection([self.name]), request_timeout=seconds)[self.name]

    def create(self, patience: Patience) -> str:
        """Make the topic, unless somebody just did, and return its id. Raises Forgetful."""
        topic = NewTopic(self.name, 1, -1, config=SETTINGS)
        try:
            self._answer(
                lambda seconds: self._admin().create_topics([topic], request_timeout=seconds)[self.name], patience
            )
        except KafkaException as error:
            if error.args[0].code() in NOT_ALLOWED or (is_permanent(error.args[0]) and not self._refusal.error):
                raise Forgetful(self._why_not_made(error.args[0])) from error
            if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
                raise
        while (made := self.id(patience)) is None:  # not every broker has heard of it
            if not patience.lasts():
                raise TimeoutError(f"topic {self.name!r} was created and cannot be seen")
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

    def _check(self, patience: Patience) -> None:
        asked = ConfigResource(ResourceType.TOPIC, self.name)
        try:
            settings = self._answer(
                lambda seconds: self._admin().describe_configs([asked], request_timeout=seconds)[asked], patience
            )
        except KafkaException as error:
            if error.args[0].code() in NOT_ALLOWED:
                raise Forgetful(
                    f"whether topic {self.name!r} keeps the marker for good cannot be seen: allow this user "
                    "DESCRIBE_CONFIGS on it"
                ) from error
            raise
        policy = settings["cleanup.policy"].value
        if policy != "compact":
            raise Forgetful(
                f"topic {self.name!r} has cleanup.policy={policy} and would forget the marker in time: give the sink a "
                "marker_topic of its own, which it creates, or set cleanup.policy=compact"
            )

    def _answer(self, ask: Callable[[float], Future[Answer]], patience: Patience) -> Answer:
        """Ask until Kafka answers, for more and more seconds: an answer may be slow, and a question may be lost.

        librdkafka looks for the controller once. If a broker that is just back knows of none, nobody is asked.
        """
        seconds = FIRST_ANSWER
        while True:
            try:
                return self._wait(ask(seconds), patience)
            except KafkaException as error:
                refused, said = self._refusal.error, error.args[0]
                if refused or said.code() not in NO_ANSWER_YET:
                    raise KafkaException(refused or said) from error
                silent = said.code() == KafkaError._TIMED_OUT
                if not patience.lasts():
                    if not silent:
                        raise
                    raise TimeoutError(
                        f"Kafka gave no answer about topic {self.name!r} for {patience.elapsed:.0f} s"
                    ) from error
                if silent:
                    seconds = min(2 * seconds, LAST_ANSWER)

    def _wait(self, future: Future[Answer], patience: Patience) -> Answer:
        while True:
            try:
                answer = future.result(SLICE)
            except NotYet as error:
                self._admin().poll(0)  # tells error_cb
                if self._refusal.error or not patience.lasts():
                    raise KafkaException(KafkaError(KafkaError._TIMED_OUT)) from error
            else:
                self._refusal.let_in()
                return answer

    def _admin(self) -> AdminClient:
        if self._client is None:
            self._client = AdminClient(self._connection)
        return self._client
