"""Gets epochs, writes the marker and ends transactions by Kafka's protocol: InitProducerId, Produce, EndTxn.

A Kafka with transaction version 2 gives the next epoch with the end of each transaction (KIP-890), so that it refuses a
late request of one transaction in the next.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from typing import Any

import pyarrow
from confluent_kafka import KafkaError, KafkaException
from kafka import errors
from kafka.errors import (
    KafkaConnectionError,
    NodeNotReadyError,
    NoError,
    NotCoordinatorError,
    RequestTimedOutError,
    for_code,
)
from kafka.protocol.producer.transaction import EndTxnRequest, InitProducerIdRequest

from exactly_once_kafka.deadline import Deadline
from exactly_once_kafka.errors import with_operation
from exactly_once_kafka.kafka_client.cluster import Cluster, code_of
from exactly_once_kafka.kafka_client.partition_writer import EncodedBatch, PartitionWriter, send
from exactly_once_kafka.kafka_client.record_batch import ProducerId, encode, one
from exactly_once_kafka.marker_store import value_of
from exactly_once_kafka.protocol import Marker

FENCING = 5  # version of InitProducerId
NEXT_EPOCH = 5  # version of EndTxn from which it gives the next epoch
NEEDED = 2  # level of transaction.version at which Kafka supports that
MOVED = (KafkaConnectionError, NodeNotReadyError, NotCoordinatorError, RequestTimedOutError)

Codes = Callable[[Any], list[int]]  # returns the error codes in an answer


class Coordinator:
    """The transactions of one transactional id. Raises KafkaException, TimeoutError, QueryStopped.

    `connection` has kafka-python's settings.
    """

    def __init__(self, name: str, connection: dict[str, Any], marker_topic: str, timeout_ms: int):
        self.name, self.connection, self.marker_topic = name, connection, marker_topic
        self._timeout_ms = timeout_ms
        self.cluster = Cluster(connection)
        self.node: str | None = None  # the transaction coordinator's, once it is found

    def disconnect(self) -> None:
        """Close the connections; the next request opens new ones, from the bootstrap addresses."""
        self.cluster.close()
        self.cluster, self.node = Cluster(self.connection), None

    def supports_txn_v2(self, deadline: Deadline) -> bool:
        """Tell whether the cluster gives the next epoch with the end of each transaction."""
        with _as_client_errors():
            return self.cluster.transaction_version(deadline) >= NEEDED

    def partitions(self, topic: str, deadline: Deadline) -> int:
        """Return how many partitions a topic to write to has."""
        try:
            with _as_client_errors():
                return self.cluster.partitions(topic, deadline)
        except KafkaException as error:
            raise KafkaException(with_operation(error.args[0], f"WRITE to topic {topic!r}")) from error

    def retry(self, attempt: Callable[[], Any], deadline: Deadline) -> Any:
        """Return the result of `attempt`, repeated while it raises retriable errors of kafka.errors."""
        with _as_client_errors():
            return self.cluster.retry(attempt, deadline)

    def fence_once(self, deadline: Deadline) -> ProducerId:
        """Request a new epoch once. Raises errors of kafka.errors: a retriable error if Kafka first has to abort."""
        request = InitProducerIdRequest(
            version=FENCING,
            transactional_id=self.name,
            transaction_timeout_ms=self._timeout_ms,
            producer_id=-1,
            producer_epoch=-1,
        )
        return _producer_id(self.ask_once(request, deadline))

    def end(self, producer: ProducerId, committed: bool, deadline: Deadline) -> ProducerId:
        """Commit or abort, and return the epoch of the next transaction. A repeated request has the same answer."""
        request = EndTxnRequest(
            version=NEXT_EPOCH,
            transactional_id=self.name,
            producer_id=producer.id,
            producer_epoch=producer.epoch,
            committed=committed,
        )
        return _producer_id(self.retry(lambda: self.ask_once(request, deadline), deadline))

    def begin_marker(
        self, marker: Marker, producer: ProducerId, rows_before: int, deadline: Deadline
    ) -> PartitionWriter:
        """Begin to write the marker, and return its writer. The transaction wrote `rows_before` to that partition."""
        self.partitions(self.marker_topic, deadline)  # finds the leader
        record = {"key": self.name.encode(), "value": value_of(marker).encode()}
        rows = pyarrow.RecordBatch.from_arrays([one(each) for each in record.values()], list(record))
        writer = PartitionWriter(self.cluster, self.name, self.marker_topic, 0)
        writer.add(EncodedBatch(encode(rows, producer, rows_before, int(time.time() * 1000)), 1))
        with _as_client_errors():
            writer.step()
        return writer

    def await_marker(self, writer: PartitionWriter, deadline: Deadline) -> None:
        """Wait until the marker is acknowledged."""
        with _as_client_errors():
            send(self.cluster, [writer], deadline.seconds, deadline.has_time)

    def ask_once(self, request: Any, deadline: Deadline, codes: Codes = lambda answer: [answer.error_code]) -> Any:
        """Send a request to the coordinator, found first if necessary. Raises the first error that `codes` returns."""
        if self.node is None:
            self.node = self.cluster.coordinator(self.name, deadline)
        try:
            answer = self.cluster.ask(request, self.node, deadline)
            for error in map(for_code, codes(answer)):
                if error is not NoError:
                    raise error(error.description)
        except MOVED:
            self.node = None
            raise
        return answer


def _producer_id(answer: Any) -> ProducerId:
    return ProducerId(answer.producer_id, answer.producer_epoch)


@contextlib.contextmanager
def _as_client_errors() -> Iterator[None]:
    """Turn errors of kafka-python and of connections into KafkaException, which the sink's other clients raise."""
    try:
        yield
    except TimeoutError:
        raise
    except (errors.KafkaError, OSError) as error:
        raise KafkaException(KafkaError(code_of(error), str(error))) from error
