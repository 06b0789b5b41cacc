"""Begins, marks and ends transactions by Kafka's own protocol: InitProducerId, the marker's record, EndTxn.

A Kafka with transaction version 2 gives the next epoch with the end of each transaction (KIP-890), so that nothing that
comes late from one transaction can do harm in the next.
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

from exactly_once_kafka.batch import Marker
from exactly_once_kafka.executors.arrays import one
from exactly_once_kafka.executors.cluster import Cluster
from exactly_once_kafka.executors.codes import code_of
from exactly_once_kafka.executors.encoding import Encoding
from exactly_once_kafka.executors.partition_writer import PartitionWriter, Piece, send
from exactly_once_kafka.executors.record_batch import ProducerId, encode
from exactly_once_kafka.marker import value_of
from exactly_once_kafka.patience import Patience

FENCING = 5  # version of InitProducerId
NEXT_EPOCH = 5  # version of EndTxn from which it gives the next epoch
NEEDED = 2  # level of transaction.version that has it
MOVED = (KafkaConnectionError, NodeNotReadyError, NotCoordinatorError, RequestTimedOutError)

Codes = Callable[[Any], list[int]]  # of errors, in an answer


class Coordinator:
    """The transactions of one transactional id. Raises KafkaException, TimeoutError, QueryStopped.

    `connection` has kafka-python's settings.
    """

    def __init__(self, name: str, connection: dict[str, Any], encoding: Encoding, marker_topic: str, timeout_ms: int):
        self.name, self.connection, self.encoding, self.marker_topic = name, connection, encoding, marker_topic
        self._timeout_ms = timeout_ms
        self.cluster = Cluster(connection)
        self.node: str | None = None  # that keeps the transactions, once it is found

    def rest(self) -> None:
        """Give up the connections; who asks again opens others, by the addresses that were given."""
        self.cluster.close()
        self.cluster, self.node = Cluster(self.connection), None

    def suffices(self, patience: Patience) -> bool:
        """Tell whether the cluster gives the next epoch with the end of each transaction."""
        with _as_client_errors():
            return self.cluster.transaction_version(patience) >= NEEDED

    def partitions(self, topic: str, patience: Patience) -> int:
        """Return how many partitions a topic has."""
        with _as_client_errors():
            return self.cluster.partitions(topic, patience)

    def patiently(self, attempt: Callable[[], Any], patience: Patience) -> Any:
        """Return what the attempt returns, which raises errors of kafka.errors, some of them to be tried again."""
        with _as_client_errors():
            return self.cluster.patiently(attempt, patience)

    def fence_once(self, patience: Patience) -> ProducerId:
        """Ask for a new epoch. Raises errors of kafka.errors, and one while what older ones left open is aborted."""
        request = InitProducerIdRequest(
            version=FENCING,
            transactional_id=self.name,
            transaction_timeout_ms=self._timeout_ms,
            producer_id=-1,
            producer_epoch=-1,
        )
        return _producer(self.ask_once(request, patience))

    def end(self, producer: ProducerId, committed: bool, patience: Patience) -> ProducerId:
        """Commit or abort, and return the epoch of the next transaction. Asked again, it answers the same."""
        request = EndTxnRequest(
            version=NEXT_EPOCH,
            transactional_id=self.name,
            producer_id=producer.id,
            producer_epoch=producer.epoch,
            committed=committed,
        )
        return _producer(self.patiently(lambda: self.ask_once(request, patience), patience))

    def encoded(self, marker: Marker, producer: ProducerId, rows_before: int) -> Piece:
        """Return the marker as its record in a transaction that wrote `rows_before` to the marker's partition."""
        record = {"key": self.name.encode(), "value": value_of(marker).encode()}
        rows = pyarrow.RecordBatch.from_arrays([one(each) for each in record.values()], list(record))
        return Piece(encode(rows, producer, rows_before, int(time.time() * 1000)), 1)

    def marking(self, encoded: Piece, patience: Patience) -> PartitionWriter:
        """Begin to make the marker part of the transaction."""
        self.partitions(self.marker_topic, patience)  # who leads it
        writer = PartitionWriter(self.cluster, self.name, self.marker_topic, 0)
        writer.add(encoded)
        with _as_client_errors():
            writer.step()
        return writer

    def marked(self, writer: PartitionWriter, patience: Patience) -> None:
        """Wait until the marker is part of the transaction."""
        with _as_client_errors():
            send(self.cluster, [writer], patience.seconds, patience.lasts)

    def ask_once(self, request: Any, patience: Patience, codes: Codes = lambda answer: [answer.error_code]) -> Any:
        """Ask the coordinator, wherever it is by now. Raises what it refuses, by the `codes` in its answer."""
        if self.node is None:
            self.node = self.cluster.coordinator(self.name, patience)
        try:
            answer = self.cluster.ask(request, self.node, patience)
            for error in map(for_code, codes(answer)):
                if error is not NoError:
                    raise error(error.description)
        except MOVED:
            self.node = None
            raise
        return answer


def _producer(answer: Any) -> ProducerId:
    return ProducerId(answer.producer_id, answer.producer_epoch)


@contextlib.contextmanager
def _as_client_errors() -> Iterator[None]:
    """Raise what Kafka refuses, and what hinders to ask it, as the other clients of the sink do."""
    try:
        yield
    except TimeoutError:
        raise
    except (errors.KafkaError, OSError) as error:
        raise KafkaException(KafkaError(code_of(error), str(error))) from error
