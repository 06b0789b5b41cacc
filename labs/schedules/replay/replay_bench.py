"""What replays share: a Kafka behind a proxy, the marker in it, and how long a replay waits."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from confluent_kafka import KafkaError, KafkaException

from labs.equipment.broker import Broker
from labs.evidence.readers.results import read_to_end
from labs.faults.proxy import Proxy, proxied_broker

LATE = 5_000  # ms after which Kafka aborts an open transaction, in a schedule with a timeout
NEVER_LATE = 300_000
PATIENCE = 60.0  # seconds for whatever has to arrive


class CannotPlay(RuntimeError):
    """A schedule cannot be carried out. The message names the step, and says what happens instead."""


@dataclass
class ReplayBench:
    """A Kafka behind a proxy. `direct` is its address past the proxy, for clients that only read."""

    broker: Broker
    proxy: Proxy

    @property
    def direct(self) -> str:
        return self.broker.bootstrap_servers


@contextmanager
def replay_bench() -> Iterator[ReplayBench]:
    """Start a Kafka behind a proxy, for any number of replays, and stop it at the end."""
    with proxied_broker() as (broker, proxy):
        yield ReplayBench(broker, proxy)


def last_marker(bootstrap_servers: str, topic: str) -> tuple[int, int] | None:
    """Return the marker that was committed last, as the model has it: the batch, and where that was planned to end.

    None if there is no marker, or no such topic yet. A replay's own program writes these two numbers. The
    real sink writes its batch and its plan, which says in a replay only where the batch ends. Raises KafkaException,
    TimeoutError.
    """
    try:
        values = [message.value() or b"" for message in read_to_end(bootstrap_servers, topic, "read_committed")]
    except KafkaException as error:
        if error.args[0].code() in (KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC):
            return None
        raise
    if not values:
        return None
    said = json.loads(values[-1])
    batch, end = (said["batch_id"], said["plan"]["end"]) if isinstance(said, dict) else said
    return batch, end
