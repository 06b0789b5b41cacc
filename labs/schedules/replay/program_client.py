"""The client of a replay's driver: one request at a time, each answered before the next, and who reads its marker."""

from __future__ import annotations

import json
from typing import Any

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, Producer, TopicPartition

from labs.schedules.replay.stepwise import Ended

PATIENCE = 60  # seconds
ONE_SLICE = 0.1  # seconds; a longer wait is several of the client's, in which two errors at once end in a SystemError
Headers = list[tuple[str, str | bytes | None]]  # as the client wants them


class ProgramClient:
    """A producer, idempotent or not, with a name for its transactions if it has any; and a consumer of the marker.

    Each call raises KafkaException for what Kafka refuses, and Ended where no answer comes.
    """

    def __init__(self, settings: dict[str, Any], transactional: bool):
        self._settings, self._transactional = settings, transactional
        self._connection = {
            "bootstrap.servers": settings["bootstrap_servers"],
            "client.id": settings["client_id"],
            "log_level": 0,
        }
        self._producer, self._has_epoch = self._new_producer(), False
        self._consumer: Consumer | None = None

    def ask_for_epoch(self) -> None:
        """Fence every older producer of the name, and begin a transaction."""
        if self._has_epoch:
            self._producer = self._new_producer()  # a client asks but once for its epoch
        self._producer.init_transactions(PATIENCE)
        self._has_epoch = True
        self._producer.begin_transaction()

    def send(self, topic: str, value: bytes, headers: Headers) -> None:
        """Send one record, and wait until it is acknowledged."""
        failures: list[KafkaError] = []
        self._producer.produce(
            topic,
            value,
            key=self._settings["name"],
            partition=0,
            headers=headers,
            on_delivery=lambda error, _: failures.append(error) if error else None,
        )
        patience = int(PATIENCE / ONE_SLICE)
        while self._producer.flush(ONE_SLICE) and not failures:
            patience -= 1
            if not patience:
                raise Ended("no answer")
        if failures:
            raise KafkaException(failures[0])

    def commit(self) -> None:
        """Commit the transaction, and begin the next one."""
        self._producer.commit_transaction(PATIENCE)
        self._producer.begin_transaction()

    def last_marker(self) -> tuple[int, int] | None:
        """Return the batch and the end that were committed last, as far as it is decided by now."""
        consumer = self._consumer = self._consumer or Consumer(
            {
                **self._connection,
                "group.id": self._settings["name"],
                "enable.auto.commit": False,
                "auto.offset.reset": "earliest",
                "isolation.level": "read_committed",
                "enable.partition.eof": True,
                "fetch.wait.max.ms": 10,
            }
        )
        consumer.assign([TopicPartition(self._settings["marker_topic"], 0, OFFSET_BEGINNING)])
        last = None
        while True:
            message = consumer.poll(PATIENCE)
            if message is None:
                raise Ended("no answer")
            error = message.error()
            if error is None:
                batch, end = json.loads(message.value() or b"")
                last = batch, end
            elif error.code() == KafkaError._PARTITION_EOF:
                return last
            elif not error.retriable():
                raise KafkaException(error)

    def _new_producer(self) -> Producer:
        settings = {
            **self._connection,
            "error_cb": lambda _: None,  # a fatal error is then told by the call that it befalls, and by no other
            "acks": "all",
            "linger.ms": 0,
            "max.in.flight": 1,
            "enable.idempotence": self._settings["idempotent"],
            "socket.timeout.ms": 1000 * PATIENCE,
            "message.timeout.ms": 1000 * PATIENCE,
            "enable.sparse.connections": False,  # or an epoch waits for a connection, half a second
        }
        if self._transactional:
            settings["transactional.id"] = self._settings["name"]
            timeout = self._settings["transaction_timeout_ms"]
            settings["transaction.timeout.ms"] = timeout
            settings["message.timeout.ms"] = min(1000 * PATIENCE, timeout)
            settings["socket.timeout.ms"] = min(1000 * PATIENCE, timeout - 200)  # the client demands that
        return Producer(settings)
