"""Transactional producers with an epoch of their own, prepared in the background.

A Kafka from 4.0 on can give a producer a new epoch with every commit (KIP-890), but librdkafka does not ask for that
yet (its issue 5423). Until then, a new epoch takes a new producer.
"""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from typing import Any

from confluent_kafka import KafkaException, Producer

# What librdkafka has to say goes to Python's logging, and nowhere if nobody listens.
LOGGER = logging.getLogger("labs.kafka")
LOGGER.addHandler(logging.NullHandler())

OWNED = {
    "transactional.id": "it is the sink's name",
    "bootstrap.servers": "pass bootstrap_servers",
    "enable.idempotence": "transactions need it",
    "group.id": "it is the sink's name",
    "isolation.level": "the marker is read with read_committed",
}
JAVA_NAMES = {
    "sasl.jaas.config": "sasl_username and sasl_password",
    "ssl.truststore.location": "ssl_ca_location (a PEM file)",
    "ssl.keystore.location": "ssl_certificate_location and ssl_key_location (PEM files)",
}


def producer_settings(transactional_id: str, bootstrap_servers: str, options: dict[str, Any]) -> dict[str, Any]:
    """Return librdkafka's settings for one sink. Raises ValueError for an option that would break the protocol."""
    given = {key.replace("_", "."): value for key, value in options.items()}
    for key in given:
        if key in OWNED:
            raise ValueError(f"{key} cannot be set: {OWNED[key]}")
        if key in JAVA_NAMES:
            raise ValueError(f"{key} belongs to Kafka's Java client; here use {JAVA_NAMES[key]}")
    settings = {
        "transaction.timeout.ms": 60_000,
        "linger.ms": 5,
        "queue.buffering.max.messages": 200_000,
        # Connect to the coordinator at once, and not when it is first needed: 7 ms for an epoch instead of 63.
        "enable.sparse.connections": False,
        "partitioner": "murmur2_random",  # as Spark's own writer and every Java client
        "delivery.report.only.error": True,
        "logger": LOGGER,
        # Without it a fatal error would surface in whatever call comes next; the failed call itself tells it too.
        "error_cb": lambda error: None,
        **given,
        "transactional.id": transactional_id,
        "bootstrap.servers": bootstrap_servers,
    }
    try:
        Producer(settings)  # connects to nobody yet; says which option is wrong
    except KafkaException as error:
        raise ValueError(f"a producer option is not usable: {error.args[0].str()}") from error
    return settings


class Fresh:
    """A producer whose `init_transactions` runs in the background, and so has the newest epoch of its id."""

    def __init__(self, settings: dict[str, Any], retire: Producer | None = None):
        self._settings, self._retired = settings, retire
        self._producer: Producer | None = None
        self._error: Exception | None = None
        self._thread = threading.Thread(target=self._prepare, name="fresh-producer", daemon=True)
        self._thread.start()

    def take(self, timeout: float) -> Producer:
        """Wait for the producer, `timeout` seconds at most, and return it. Raises KafkaException, TimeoutError."""
        self._thread.join(timeout)
        if self._error:
            raise self._error
        if self._producer is None:
            raise TimeoutError(f"no epoch was granted within {timeout:g} s: is the transaction coordinator up?")
        return self._producer

    def _prepare(self) -> None:
        try:
            self._retired = None  # closes its connections, which may take a moment too
            producer = Producer(self._settings)
            deadline = time.monotonic() + float(self._settings["transaction.timeout.ms"]) / 1000
            while self._producer is None:
                try:
                    # Resumed every 20 ms, because librdkafka would look again only after half a second.
                    producer.init_transactions(0.02)
                    self._producer = producer
                except KafkaException as error:
                    if not error.args[0].retriable() or time.monotonic() > deadline:
                        raise
        except Exception as error:
            self._error = error


def abort(producer: Producer, timeout: float = 5) -> None:
    """Abort the open transaction, so that readers need not wait for its timeout. A failure to do so is harmless."""
    with contextlib.suppress(KafkaException):
        producer.abort_transaction(timeout)
