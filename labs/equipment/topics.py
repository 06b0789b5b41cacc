"""Topics of the lab: create them, remove them, and return their end offsets."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from typing import TypeVar

from kafka import KafkaAdminClient, KafkaConsumer, TopicPartition
from kafka.admin import NewTopic
from kafka.errors import (
    BrokerResponseError,
    KafkaError,
    RequestTimedOutError,
    TopicAlreadyExistsError,
    UnknownTopicOrPartitionError,
)

from labs.equipment.waiting import eventually

Client = TypeVar("Client", KafkaAdminClient, KafkaConsumer)

# How long a broker may take to answer; its restart takes 5 s.
PATIENCE_MS = 15_000


class KafkaUnreachable(ConnectionError):
    """No Kafka answers at the address."""


class TopicRefused(RuntimeError):
    """Kafka refuses to create or to remove a topic."""


@contextmanager
def admin(bootstrap_servers: str) -> Iterator[KafkaAdminClient]:
    """Open a kafka-python admin client. Raises KafkaUnreachable."""
    with closing(_open(KafkaAdminClient, bootstrap_servers)) as client:
        yield client


def _open(client: type[Client], bootstrap_servers: str) -> Client:
    try:
        return client(bootstrap_servers=bootstrap_servers, bootstrap_timeout_ms=PATIENCE_MS)
    except KafkaError as error:
        raise KafkaUnreachable(
            f"no Kafka answers at {bootstrap_servers} ({type(error).__name__}): is the broker running, and the address "
            "right? `python -m labs broker` starts one and prints its address"
        ) from error


def create_topic(bootstrap_servers: str, name: str, partitions: int = 2, replication: int = -1, **settings: str) -> str:
    """Create a topic unless it exists, wait until it can be used, and return its name.

    A `replication` of -1 is what the cluster has as its default. `settings` are topic settings with `_` for `.`,
    such as `retention_ms="1000"`. Raises KafkaUnreachable and TopicRefused.
    """
    configs = {key.replace("_", "."): value for key, value in settings.items()}
    with admin(bootstrap_servers) as client:
        try:
            _twice(lambda: client.create_topics([NewTopic(name, partitions, replication, topic_configs=configs)]))
        except TopicAlreadyExistsError:
            return name
        except BrokerResponseError as error:
            said = re.search(r"error_message=(['\"])(.+?)\1, ", str(error))
            raise TopicRefused(f"topic {name!r} was not created: {said[2] if said else error}") from error
    eventually(lambda: len(end_offsets(bootstrap_servers, name)) == partitions)
    return name


def _twice(ask: Callable[[], object]) -> None:
    """Repeat a request once after a timeout: a broker on a busy machine may need more than its ten seconds."""
    try:
        ask()
    except RequestTimedOutError:
        ask()


def remove_topics(bootstrap_servers: str, *names: str) -> None:
    """Remove the topics that exist. Raises KafkaUnreachable, and TopicRefused, which names those that are left."""
    left = {}
    with admin(bootstrap_servers) as client:
        for name in names:
            try:
                client.delete_topics([name])
            except UnknownTopicOrPartitionError:
                pass
            except KafkaError as error:
                left[name] = error
    if left:
        raise TopicRefused(
            f"not removed: {', '.join(left)}, because {next(iter(left.values()))}. Remove them as a user that may do so"
        )


def end_offsets(bootstrap_servers: str, topic: str) -> dict[int, int]:
    """Return the log end of each partition: partition -> the offset that the next record will get.

    Nothing, if there is no such topic. Raises KafkaUnreachable.
    """
    with closing(_open(KafkaConsumer, bootstrap_servers)) as consumer:
        partitions = [TopicPartition(topic, p) for p in consumer.partitions_for_topic(topic) or ()]
        return {at.partition: end for at, end in sorted(consumer.end_offsets(partitions).items())}
