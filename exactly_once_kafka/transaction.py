"""The transaction of one micro-batch, whoever writes its rows: begin, write, mark, then commit or abort."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable

from confluent_kafka import Producer

from exactly_once_kafka.batch import Marker
from exactly_once_kafka.cause import true_cause
from exactly_once_kafka.kafka_rows import KafkaBatches, Tags
from exactly_once_kafka.marker import MarkerStore
from exactly_once_kafka.patience import Patience
from exactly_once_kafka.producer import commit
from exactly_once_kafka.send import send_rows


class Transaction(ABC):
    """Raises KafkaException, TimeoutError, ValueError for a row that cannot be a record, QueryStopped.

    `known` is the marker, if it need not be read: nobody can have changed it and left this transaction's epoch valid.
    """

    known: Marker | None = None

    @abstractmethod
    def begin(self, marker: Marker) -> None: ...

    @abstractmethod
    def write(self, rows: KafkaBatches, tags: Tags, patience: Patience, middle: Callable[[], object]) -> int:
        """Write every row, wait until all are acknowledged, and return how many there were.

        `middle` is called once on the way, when some of them or all are.
        """

    @abstractmethod
    def mark(self, patience: Patience) -> None:
        """Wait until the marker is acknowledged, too."""

    @abstractmethod
    def commit(self, patience: Patience) -> None: ...

    @abstractmethod
    def abort(self, seconds: float) -> None: ...


class ByDriver(Transaction):
    """All rows pass through the driver, into librdkafka's producer, which has an epoch that it got for this batch."""

    def __init__(self, producer: Producer, store: MarkerStore):
        self.producer, self._store = producer, store

    def begin(self, marker: Marker) -> None:
        self._marker = marker
        self.producer.begin_transaction()

    def write(self, rows: KafkaBatches, tags: Tags, patience: Patience, middle: Callable[[], object]) -> int:
        with true_cause(self.producer, rows.topic):
            return send_rows(rows, self.producer, patience, tags, middle)

    def mark(self, patience: Patience) -> None:
        self._store.send(self._marker, self.producer, patience)

    def commit(self, patience: Patience) -> None:
        commit(self.producer, patience)

    def abort(self, seconds: float) -> None:
        self.producer.abort_transaction(seconds)
