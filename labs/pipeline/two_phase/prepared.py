"""Phase one: write everything, and do not commit.

A prepared transaction is three values: the transactional id, the producer id and its epoch. Its records are in
Kafka, on disk and hidden. Any process that has the three values can commit or abort it (`end_transaction.finish`), long
after the process that wrote it has ended.

Limitations: the broker aborts it `transaction_timeout_ms` after it began, prepared or not, and so does the next
producer of the same transactional id: recover before you write again.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any

from kafka import KafkaProducer
from kafka.errors import KafkaError


@dataclass(frozen=True, order=True)
class PreparedTransaction:
    """The values that are needed to finish a transaction."""

    transactional_id: str
    producer_id: int
    epoch: int

    def as_dict(self) -> dict[str, Any]:
        """Return plain values for JSON; `PreparedTransaction(**values)` reads them again."""
        return asdict(self)


class PrepareFailed(RuntimeError):
    """Not every record is in Kafka: the transaction can only be aborted."""


class PreparingProducer:
    """A producer for one transaction, which it prepares and does not commit.

        with PreparingProducer("sink-7", bootstrap_servers="127.0.0.1:9092") as producer:
            producer.send("topic", b"value")
            prepared = producer.prepare()

    If the block ends before `prepare`, the transaction is aborted; afterwards it stays open. `options` are
    kafka-python's. Raises KafkaError.
    """

    def __init__(
        self,
        transactional_id: str,
        *,
        bootstrap_servers: str,
        transaction_timeout_ms: int = 60_000,
        **options: Any,
    ):
        self.transactional_id = transactional_id
        self._timeout = transaction_timeout_ms / 1000
        self._sent: list = []
        self._prepared = False
        self._producer = KafkaProducer(
            bootstrap_servers=bootstrap_servers,
            transactional_id=transactional_id,
            transaction_timeout_ms=transaction_timeout_ms,
            **options,
        )
        try:
            self._producer.init_transactions()  # a new epoch: whatever this id left open is aborted here
            self._producer.begin_transaction()
        except BaseException:
            self._producer.close(timeout=0)
            raise
        self._began_as = self._identity()

    def send(
        self, topic: str, value: bytes | None, key: bytes | None = None, headers: Iterable[tuple[str, bytes]] = ()
    ) -> None:
        """Add a record to the transaction."""
        if self._prepared:
            raise RuntimeError(f"{self.transactional_id} is prepared: no record can be added any more")
        self._sent.append(self._producer.send(topic, value, key, list(headers)))

    def prepare(self) -> PreparedTransaction:
        """Wait until every record is acknowledged, and return the prepared transaction. Raises PrepareFailed."""
        if not self._sent:
            raise PrepareFailed(f"{self.transactional_id}: nothing was sent, and Kafka has no empty transactions")
        try:
            with contextlib.suppress(KafkaError):  # flush does not wait for the parts of a batch that had to be split
                self._producer.flush()
            for acknowledgement in self._sent:
                acknowledgement.get(self._timeout)
        except KafkaError as error:
            raise PrepareFailed(f"{self.transactional_id}: {type(error).__name__}: {error}") from error
        if self._identity() != self._began_as:  # the client took a new epoch after an error, and lost what it had sent
            raise PrepareFailed(f"{self.transactional_id}: the client aborted the transaction and began another one")
        self._prepared = True
        return self._began_as

    def close(self) -> None:
        """Abort the transaction unless it is prepared, and disconnect."""
        if not self._prepared:
            with contextlib.suppress(KafkaError):
                self._producer.abort_transaction()
        self._producer.close(timeout=5)  # kafka-python does not abort on close, as Kafka's Java client would

    def _identity(self) -> PreparedTransaction:
        # kafka-python has no public name for this: it expects that the producer that began a transaction ends it.
        now = self._producer._transaction_manager.producer_id_and_epoch
        return PreparedTransaction(self.transactional_id, now.producer_id, now.epoch)

    def __enter__(self) -> PreparingProducer:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
