"""A Kafka cluster as its own protocol shows it: requests to a partition's leader or to a transaction's coordinator.

The connections, with TLS and SASL, and the requests are kafka-python's; this says whom to ask, and until when.
No thread is started: what is under way moves on while somebody waits in `ask` or `wait`.
"""

from __future__ import annotations

import contextlib
import os
import weakref
from collections.abc import Iterable, Mapping
from typing import Any

from kafka.errors import (
    BrokerResponseError,
    InvalidTopicError,
    NodeNotReadyError,
    TopicAuthorizationFailedError,
    UnknownBrokerIdError,
    UnknownTopicOrPartitionError,
)
from kafka.future import Future
from kafka.net import KafkaConnectionManager, NetworkSelector
from kafka.protocol.metadata import ApiVersionsRequest, CoordinatorType, FindCoordinatorRequest
from kafka.structs import TopicPartition

from exactly_once_kafka.executors.produce_requests import ProduceRequests
from exactly_once_kafka.patience import SLICE, Patience

RETRY = 0.02  # seconds between two tries
ONE_ADDRESS = 10  # seconds for an address, which may lead nowhere; then another may be tried
SETTINGS = {
    "max_in_flight_requests_per_connection": 1000,  # each writer counts its own
    "reconnect_backoff_max_ms": 500,
    "receive_message_max_bytes": 100_000_000,
}


class Cluster:
    """The cluster that `settings` (kafka-python's names) lead to. Use it in one thread at a time.

    Its connections end with it, or with the process, whichever comes first. Errors are those of kafka.errors; where
    nobody answers in time, TimeoutError; and whatever `patience` raises.
    """

    def __init__(self, settings: Mapping[str, Any]):
        self._net = NetworkSelector(slow_task_threshold_secs=0)
        self._manager = KafkaConnectionManager(self._net, **SETTINGS, **settings)
        self.produces = ProduceRequests(self.send)  # are sent when they are waited for
        # kafka-python, left to itself, logs an error for what it finds half gone when it is collected.
        self._end = weakref.finalize(self, _close, self._manager, self._net, os.getpid())

    def partitions(self, topic: str, patience: Patience, at_least: int = 1) -> int:
        """Return how many partitions a topic has. Kafka is asked if fewer than `at_least` are known."""
        return int(self.patiently(lambda: self._count(topic, patience, at_least), patience))

    def leader(self, topic: str, partition: int) -> int | None:
        """Return the leader's node id, or None while there is none or it is not known."""
        node = self._manager.cluster.leader_for_partition(TopicPartition(topic, partition))
        return None if node in (None, -1) else int(node)

    def has(self, topic: str, partition: int) -> bool:
        """Tell whether there is such a partition, by what was heard last."""
        return partition in (self._manager.cluster.partitions_for_topic(topic) or ())

    def transaction_version(self, patience: Patience) -> int:
        """Return the level of the cluster's feature transaction.version: from 2 on, EndTxn gives the next epoch."""
        request = ApiVersionsRequest(client_software_name="exactly-once-kafka", client_software_version="1")
        answer = self.patiently(lambda: self.ask(request, None, patience), patience)
        levels = {feature.name: feature.max_version_level for feature in answer.finalized_features}
        return int(levels.get("transaction.version", 0))

    def coordinator(self, key: str, patience: Patience, kind: CoordinatorType = CoordinatorType.TRANSACTION) -> str:
        """Return the name of the node that coordinates a transactional id's transactions, or a group, now."""
        found = self.ask(FindCoordinatorRequest(version=3, key=key, key_type=kind.value), None, patience)
        return str(self._manager.cluster.add_coordinator(found, kind, key))

    def patiently(self, attempt: Any, patience: Patience) -> Any:
        """Repeat what fails because a broker is away or busy; at last raise what Kafka said, or TimeoutError."""
        said: BrokerResponseError | None = None
        while True:
            try:
                return attempt()
            except TimeoutError:
                if said:
                    raise said from None
                raise
            except Exception as error:
                if not getattr(error, "retriable", False):
                    raise
                said = error if isinstance(error, BrokerResponseError) else said
                if not patience.lasts():
                    raise said or TimeoutError(f"no answer for {patience.elapsed:.0f} s; last: {error}") from error
            self.wait(RETRY)

    def ask(self, request: Any, node: int | str | None, patience: Patience) -> Any:
        """Return a node's answer; None stands for any node."""
        self.connect(patience)
        return self._answer(self.send(request, self._manager.least_loaded_node() if node is None else node), patience)

    def ask_all(self, requests: Iterable[tuple[int, Any]], patience: Patience) -> list[Any]:
        """Return what nodes answer, each to a request of its own."""
        futures = [self.send(request, node) for node, request in requests]
        return [self._answer(each, patience) for each in futures]

    def is_told_to_wait(self, node: int | None) -> bool:
        """Tell whether the node has told this client to send nothing for a while, since its quota is used up."""
        connection = self._manager._conns.get(node)
        return connection is not None and "throttle" in connection.paused

    def send(self, request: Any, node: int | str) -> Future:
        """Send a request; the future has failed already if the node cannot be reached just now."""
        try:
            return self._manager.send(request, node)
        except UnknownBrokerIdError:  # it was dead when we looked last
            self.look_again()
            return Future().failure(NodeNotReadyError(node))

    def wait(self, seconds: float) -> None:
        """Let what is under way move on, until something happens or the time is up."""
        self.produces.send()
        self._net.poll(timeout_ms=seconds * 1000)

    def connect(self, patience: Patience) -> None:
        """Connect, unless that is done."""
        if not self._manager.bootstrapped:
            seconds = min(patience.seconds, ONE_ADDRESS)
            self._answer(self._manager.bootstrap_async(timeout_ms=seconds * 1000), patience)

    def look_again(self) -> Future:
        """Ask who leads what by now."""
        return self._manager.cluster.request_update()

    def follow(self, topic: str) -> None:
        """Keep an eye on who leads the topic's partitions. Raises InvalidTopicError for what can be no name."""
        try:
            self._manager.cluster.add_topic(topic)
        except (TypeError, ValueError) as error:
            raise InvalidTopicError(f"topic {topic!r}: {error}") from error

    def close(self) -> None:
        """End its connections; nothing if they have ended."""
        self._end()

    def _answer(self, future: Future, patience: Patience) -> Any:
        while not future.is_done:
            if not patience.lasts():
                raise TimeoutError(f"Kafka gave no answer for {patience.elapsed:.0f} s")
            self._net.poll(timeout_ms=SLICE * 1000, future=future)
        if future.exception is not None:
            raise future.exception
        return future.value

    def _count(self, topic: str, patience: Patience, at_least: int) -> int:
        self.connect(patience)
        known = self._manager.cluster.partitions_for_topic(topic)
        if known and len(known) >= at_least:
            return len(known)
        self.follow(topic)
        self._answer(self.look_again(), patience)
        if known := self._manager.cluster.partitions_for_topic(topic):
            return len(known)
        if topic in self._manager.cluster.unauthorized_topics:
            raise TopicAuthorizationFailedError(f"not allowed to DESCRIBE topic {topic!r}")
        raise UnknownTopicOrPartitionError(topic)


def _close(manager: KafkaConnectionManager, net: NetworkSelector, owner: int) -> None:
    """End the connections, unless they are another process's, of which this one was forked."""
    if os.getpid() != owner:
        return
    with contextlib.suppress(RuntimeError):  # at the process's end a thread may still be waiting for an answer
        manager.close()
        net.close()
