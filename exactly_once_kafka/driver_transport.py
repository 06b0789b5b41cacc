"""All rows pass through the driver, into librdkafka's transactional producer. Works with any Kafka from 2.5 on.

Kafka 4.0 and later can give a producer a new epoch with every commit (KIP-890), but librdkafka does not ask for that
yet (its issue 5423), so each batch needs a new producer. It is created in the background while Spark computes the
batch, because creating it may take half a second.
"""

from __future__ import annotations

import contextlib
import functools
from typing import TYPE_CHECKING, Any

from confluent_kafka import KafkaException, Producer

from exactly_once_kafka.errors import root_error
from exactly_once_kafka.marker_store import MarkerStore
from exactly_once_kafka.producer import PendingProducer, commit, send_rows
from exactly_once_kafka.protocol import Marker
from exactly_once_kafka.transport import KafkaTransport

if TYPE_CHECKING:
    from exactly_once_kafka.kafka_client.open_transaction_repair import OpenTransactionRepair


class DriverTransport(KafkaTransport):
    """Writes rows and marker by librdkafka producers with these `settings`.

    `repair` ends transactions that Kafka left open; None if the sink cannot find them.
    """

    def __init__(
        self, store: MarkerStore, batch_headers: bool, settings: dict[str, Any], repair: OpenTransactionRepair | None
    ):
        super().__init__(store, batch_headers)
        self._settings, self._repair = settings, repair
        self.pending: PendingProducer | None = None
        self._producer: Producer | None = None
        self._open = False

    @property
    def has_epoch(self) -> bool:
        """Tell whether there is a producer for the next batch, or one is being created."""
        return self.pending is not None and self.pending.is_usable

    def fence(self) -> None:
        self.forget_epoch()
        self.pending = self._new_producer(abort=True)
        self._producer = self.pending.take(self.deadline)

    def read_marker(self) -> Marker | None:
        assert self.pending is not None
        self._producer = self.pending.take(self.deadline)
        return super().read_marker()

    def rows(self) -> bool:
        assert self._producer is not None
        self.pending = None  # one transaction per epoch
        self._producer.begin_transaction()
        self._open = True
        with root_error(self._producer, self.data.topic):
            send_rows(self.data, self._producer, self.deadline, self.tags(), self.in_rows)
        return True

    def marker(self) -> None:
        assert self._producer is not None
        self.store.send(Marker.of(self.batch), self._producer, self.deadline)

    def commit(self) -> None:
        assert self._producer is not None
        self._open = False  # from here on, only Kafka knows whether it is committed
        commit(self._producer, self.deadline)

    def next_epoch(self) -> None:
        self.pending = self._new_producer(abort=False)

    def _new_producer(self, abort: bool) -> PendingProducer:
        """Create a producer in the background. `abort`: first abort a transaction that is still open.

        A new epoch makes Kafka forget whether the last transaction was committed or aborted. So before that, `repair`
        ends this transaction in the partitions where Kafka left it open.
        """
        retired, self._producer = self._producer, None
        if self._repair is None:
            return PendingProducer(self._settings, retired)
        return PendingProducer(self._settings, retired, functools.partial(self._repair.ensure_ended, abort=abort))

    def ensure_transaction_ended(self) -> None:
        if self._repair is not None:
            self._repair.ensure_ended(self.deadline.restarted())

    def give_up(self, seconds: float) -> None:
        if self._open and self._producer is not None:
            self._open = False
            with contextlib.suppress(KafkaException):  # the next epoch aborts it
                self._producer.abort_transaction(seconds)
        self.forget_epoch()

    def stop_asking(self) -> None:
        if (pending := self.pending) is not None:
            pending.stop_asking()

    def forget_epoch(self) -> None:
        self.stop_asking()
        self.pending = self._producer = None
        self._open = False

    def close(self) -> None:
        super().close()
        if self._repair is not None:
            self._repair.disconnect()
