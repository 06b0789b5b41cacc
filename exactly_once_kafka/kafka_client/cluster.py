"""Sends requests of Kafka's protocol to the leader of a partition or to a transaction coordinator.

kafka-python has the connections, with TLS and SASL, and the requests; this module chooses the node and limits the time.
It starts no thread: data is sent and received only while the caller is in a method of Cluster that waits.
"""

from __future__ import annotations

import contextlib
import functools
import json
import os
import time
import weakref
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from confluent_kafka import KafkaError
from kafka import errors
from kafka.errors import (
    BrokerResponseError,
    InvalidTopicError,
    KafkaConnectionError,
    NodeNotReadyError,
    SaslAuthenticationFailedError,
    TopicAuthorizationFailedError,
    UnknownBrokerIdError,
    UnknownTopicOrPartitionError,
)
from kafka.future import Future
from kafka.net import KafkaConnectionManager, NetworkSelector
from kafka.net.connection import KafkaConnection
from kafka.protocol.metadata import ApiVersionsRequest, CoordinatorType, FindCoordinatorRequest
from kafka.protocol.producer.produce import ProduceRequest
from kafka.structs import TopicPartition

from exactly_once_kafka.deadline import SLICE, Deadline
from exactly_once_kafka.errors import AbsenceTimer


class NoSuchPartition(errors.KafkaError):  # type: ignore[misc]  # kafka-python comes without types
    """A row names a partition that its topic does not have."""


# The permanent errors that have no code in Kafka's protocol. After any other error without a code, a restart may help.
CODES = {
    NoSuchPartition: KafkaError._UNKNOWN_PARTITION,
    errors.IllegalArgumentError: KafkaError._INVALID_ARG,
    errors.KafkaConfigurationError: KafkaError._INVALID_ARG,
    errors.UnrecognizedBrokerVersion: KafkaError._UNSUPPORTED_FEATURE,
    errors.UnsupportedCodecError: KafkaError._NOT_IMPLEMENTED,
}


def code_of(error: Exception) -> int:
    """Return the code of an error, of Kafka's or of librdkafka's."""
    if isinstance(error, errors.BrokerResponseError) and error.errno is not None:
        return int(error.errno)
    return int(CODES.get(type(error), KafkaError._FAIL))


VERSION = 12  # of Produce: from here on, a leader enrols its partition in the transaction by itself (KIP-890)
BROKER_TIMEOUT = 30_000  # milliseconds that a leader waits for its followers
MOST_BYTES = 16_000_000  # of a request, unless it is for one partition: a broker refuses more than 100 MB by default
TOPIC = ProduceRequest.TopicProduceData
PARTITION = TOPIC.PartitionProduceData


class _Waiting(NamedTuple):
    content: bytes
    answer: Future


Request = dict[tuple[str, int], _Waiting]  # topic and partition; each is in a request at most once


class ProduceRequests:
    """Gathers record batches until `send`. `to_node` sends a request to a node and returns the future of its answer."""

    def __init__(self, to_node: Callable[[ProduceRequest, int], Future]):
        self._to_node = to_node
        self._requests: dict[tuple[int, str], list[Request]] = {}  # node, transactional id -> in their order

    def add(self, node: int, transactional_id: str, topic: str, partition: int, content: bytes) -> Future:
        """Add a record batch, and return the future of its partition's answer. What is added first is sent first."""
        requests = self._requests.setdefault((node, transactional_id), [])
        behind = max((n for n, each in enumerate(requests, 1) if (topic, partition) in each), default=0)
        request = next((each for each in requests[behind:] if _size(each) + len(content) <= MOST_BYTES), None)
        if request is None:
            requests.append(request := {})
        request[topic, partition] = _Waiting(content, Future())
        return request[topic, partition].answer

    def forget(self) -> None:
        """Drop what was added and not sent yet."""
        self._requests = {}

    def send(self) -> None:
        """Send what was added since the last call. A future fails at once if its request cannot be sent."""
        gathered, self._requests = self._requests, {}
        for (node, transactional_id), requests in gathered.items():
            for request in requests:
                sent = self._to_node(_produce(transactional_id, request), node)
                sent.add_callback(functools.partial(_answer, request))
                sent.add_errback(functools.partial(_fail, request))


def _size(request: Request) -> int:
    return sum(len(each.content) for each in request.values())


def _produce(transactional_id: str, request: Request) -> ProduceRequest:
    topics: dict[str, list[Any]] = {}
    for (topic, partition), waiting in request.items():
        topics.setdefault(topic, []).append(PARTITION(index=partition, records=waiting.content))
    return ProduceRequest(
        version=VERSION,
        transactional_id=transactional_id,
        acks=-1,
        timeout_ms=BROKER_TIMEOUT,
        topic_data=[TOPIC(name=topic, partition_data=partitions) for topic, partitions in topics.items()],
    )


def _answer(request: Request, value: Any) -> None:
    for topic in value.responses:
        for partition in topic.partition_responses:
            request.pop((topic.name, partition.index)).answer.success(partition)
    _fail(request, RuntimeError("the broker's answer leaves out a partition"))


def _fail(request: Request, error: BaseException) -> None:
    for each in request.values():
        each.answer.failure(error)


RETRY = 0.02  # seconds between two tries
ONE_ADDRESS = 10  # seconds to try one bootstrap address; then another may be tried
SETTINGS = {
    "max_in_flight_requests_per_connection": 1000,  # each PartitionWriter limits its own
    "reconnect_backoff_max_ms": 500,
    "receive_message_max_bytes": 100_000_000,
}


class NoSuchTopic(UnknownTopicOrPartitionError):  # type: ignore[misc]  # kafka-python comes without types
    """Kafka has not known the topic for GONE seconds, so it is not a new topic that a broker learns of late."""

    retriable = False


class _Connections(KafkaConnectionManager):  # type: ignore[misc]  # kafka-python comes without types
    """The connections of kafka-python, which would hide two errors that do not pass by themselves."""

    _refused: Exception | None = None

    def get_connection(self, node_id: int | str | None, *args: Any, **options: Any) -> KafkaConnection:
        """Return a node's connection. Raises SaslAuthenticationFailedError if a login was refused in the bootstrap.

        kafka-python repeats a bootstrap after every error of a connection; only what is raised here ends it.
        """
        if self._refused is not None:
            refused, self._refused = self._refused, None
            raise refused
        connection = super().get_connection(node_id, *args, **options)
        if self.cluster.is_bootstrap(node_id):
            connection.init_future.add_errback(self._note_refusal)
        return connection

    def _note_refusal(self, error: Exception) -> None:
        if isinstance(error, SaslAuthenticationFailedError):
            self._refused = error

    async def _build_transport(self, node: Any, *args: Any, **options: Any) -> Any:
        """Connect to a node. Raises KafkaConnectionError, also if a certificate's file cannot be read.

        With an OSError, as it is, kafka-python would never request the metadata again, in which the leaders are.
        """
        try:
            return await super()._build_transport(node, *args, **options)
        except OSError as error:
            raise KafkaConnectionError(f"{node.host}:{node.port}: {error}") from error


class Cluster:
    """A client of the cluster that `settings` (with kafka-python's names) point to. Use it in one thread at a time.

    Its connections are closed with it, or when the process ends. Raises errors of kafka.errors, TimeoutError if no
    broker answers in time, and what `deadline` raises.
    """

    def __init__(self, settings: Mapping[str, Any]):
        self._net = NetworkSelector(slow_task_threshold_secs=0)
        self._manager = _Connections(self._net, **SETTINGS, **settings)
        # It does not pass this on: a topic that somebody has deleted must be missed, and not made anew.
        self._manager.cluster.config["allow_auto_create_topics"] = False
        self.produces = ProduceRequests(self.send)  # sent by `wait`
        # Without this, kafka-python logs an error when the garbage collector finds its objects half closed.
        self._end = weakref.finalize(self, _close, self._manager, self._net, os.getpid())

    def partitions(self, topic: str, deadline: Deadline, at_least: int = 1) -> int:
        """Return how many partitions a topic has. Ask Kafka only if fewer than `at_least` are known."""
        absence = AbsenceTimer()

        def count() -> int:
            try:
                return self._count(topic, deadline, at_least)
            except UnknownTopicOrPartitionError as error:
                if absence.missed():
                    raise NoSuchTopic(topic) from error
                raise

        return int(self.retry(count, deadline))

    def leader(self, topic: str, partition: int) -> int | None:
        """Return the leader's node id, or None while there is none or it is not known."""
        node = self._manager.cluster.leader_for_partition(TopicPartition(topic, partition))
        return None if node in (None, -1) else int(node)

    def has(self, topic: str, partition: int) -> bool:
        """Tell whether there is such a partition, by the last metadata."""
        return partition in (self._manager.cluster.partitions_for_topic(topic) or ())

    def transaction_version(self, deadline: Deadline) -> int:
        """Return the level of the cluster's feature transaction.version: from 2 on, EndTxn gives the next epoch."""
        request = ApiVersionsRequest(client_software_name="exactly-once-kafka", client_software_version="1")
        answer = self.retry(lambda: self.ask(request, None, deadline), deadline)
        levels = {feature.name: feature.max_version_level for feature in answer.finalized_features}
        return int(levels.get("transaction.version", 0))

    def coordinator(self, transactional_id: str, deadline: Deadline) -> str:
        """Return the name of the node that coordinates the transactions of this id now."""
        kind = CoordinatorType.TRANSACTION
        found = self.ask(FindCoordinatorRequest(version=3, key=transactional_id, key_type=kind.value), None, deadline)
        return str(self._manager.cluster.add_coordinator(found, kind, transactional_id))

    def retry(self, attempt: Any, deadline: Deadline) -> Any:
        """Return the result of `attempt`, repeated after retriable errors; at the deadline raise Kafka's last answer.

        If Kafka never answered, raise TimeoutError.
        """
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
                if not deadline.has_time():
                    raise said or TimeoutError(f"no answer for {deadline.elapsed:.0f} s; last: {error}") from error
            self.wait(RETRY)

    def ask(self, request: Any, node: int | str | None, deadline: Deadline) -> Any:
        """Return a node's answer; None stands for any node."""
        self.connect(deadline)
        return self._answer(self.send(request, self._manager.least_loaded_node() if node is None else node), deadline)

    def ask_all(self, requests: Iterable[tuple[int, Any]], deadline: Deadline) -> list[Any]:
        """Send each node its request, and return the answers in the same order."""
        futures = [self.send(request, node) for node, request in requests]
        return [self._answer(each, deadline) for each in futures]

    def is_throttled(self, node: int | None) -> bool:
        """Tell whether the node has told this client to send nothing for a while, because its quota is used up."""
        connection = self._manager._conns.get(node)
        return connection is not None and "throttle" in connection.paused

    def send(self, request: Any, node: int | str) -> Future:
        """Send a request and return the future of its answer, which has failed if the node cannot be reached now."""
        try:
            return self._manager.send(request, node)
        except UnknownBrokerIdError:  # the last metadata does not have this node
            self.refresh_metadata()
            return Future().failure(NodeNotReadyError(node))

    def wait(self, seconds: float) -> None:
        """Send and receive, until something happens or the time is up."""
        self.produces.send()
        self._net.poll(timeout_ms=seconds * 1000)

    def connect(self, deadline: Deadline) -> None:
        """Connect, unless it is connected."""
        if not self._manager.bootstrapped:
            seconds = min(deadline.seconds, ONE_ADDRESS)
            self._answer(self._manager.bootstrap_async(timeout_ms=seconds * 1000), deadline)

    def refresh_metadata(self) -> Future:
        """Request the metadata again, which has the leaders of the partitions. Return the future of the answer."""
        return self._manager.cluster.request_update()

    def follow(self, topic: str) -> None:
        """Keep the topic in the metadata from now on. Raises InvalidTopicError for a name that is not valid."""
        try:
            self._manager.cluster.add_topic(topic)
        except (TypeError, ValueError) as error:
            raise InvalidTopicError(f"topic {topic!r}: {error}") from error

    def close(self) -> None:
        """Close the connections. Idempotent."""
        self._end()

    def _answer(self, future: Future, deadline: Deadline) -> Any:
        while not future.is_done:
            if not deadline.has_time():
                raise TimeoutError(f"Kafka gave no answer for {deadline.elapsed:.0f} s")
            self._net.poll(timeout_ms=SLICE * 1000, future=future)
        if future.exception is not None:
            raise future.exception
        return future.value

    def _count(self, topic: str, deadline: Deadline, at_least: int) -> int:
        self.connect(deadline)
        known = self._manager.cluster.partitions_for_topic(topic)
        if known and len(known) >= at_least:
            return len(known)
        self.follow(topic)
        self._answer(self.refresh_metadata(), deadline)
        if known := self._manager.cluster.partitions_for_topic(topic):
            return len(known)
        if topic in self._manager.cluster.unauthorized_topics:
            raise TopicAuthorizationFailedError(f"not allowed to DESCRIBE topic {topic!r}")
        raise UnknownTopicOrPartitionError(topic)


def _close(manager: KafkaConnectionManager, net: NetworkSelector, owner: int) -> None:
    """Close the connections, unless this process was forked from the one that opened them."""
    if os.getpid() != owner:
        return
    with contextlib.suppress(RuntimeError):  # when the process ends, a thread may still wait for an answer
        manager.close()
        net.close()


UNUSED = 600  # seconds without a task: the query has probably ended, or logs in differently by now


@dataclass
class _Kept:
    cluster: Cluster
    provider: Any  # the TokenProvider, or None if the client logs in without tokens
    used: float  # when a task needed it last


_kept: dict[str, _Kept] = {}


def kept_cluster(connection: dict[str, Any]) -> Cluster:
    """Return this process's client for these settings of kafka-python. It logs in with the newest token."""
    key, provider, now = _key(connection), connection.get("sasl_oauth_token_provider"), time.monotonic()
    if key not in _kept:
        for old in [each for each, other in _kept.items() if other.used < now - UNUSED]:
            _end(old)
        _kept[key] = _Kept(Cluster(connection), provider, now)
    elif provider is not None:
        _kept[key].provider.renew(provider)
    _kept[key].used = now
    return _kept[key].cluster


def end_connections(connection: dict[str, Any]) -> None:
    """Close the connections for these settings, if there are any; their requests fail."""
    _end(_key(connection))


def _end(key: str) -> None:
    if kept := _kept.pop(key, None):
        kept.cluster.close()


def _key(connection: dict[str, Any]) -> str:
    return json.dumps(connection, sort_keys=True, default=str)
