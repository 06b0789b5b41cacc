"""The options of a sink: librdkafka's producer settings, less those that the protocol depends on."""

from __future__ import annotations

import logging
from typing import Any

from confluent_kafka import KafkaException, Producer

from exactly_once_kafka.names import check_text, is_whole
from exactly_once_kafka.tokens import with_kept_tokens

# What librdkafka has to say goes to Python's logging, and nowhere if nobody listens.
LOGGER = logging.getLogger("exactly_once_kafka")
LOGGER.addHandler(logging.NullHandler())
NO_ASSERTS = (
    "this Python leaves out every `assert`, without which kafka-python understands no answer of Kafka; unset "
    "PYTHONOPTIMIZE, or run it without -O"
)
BLIND = "sink %r cannot see whether Kafka leaves rows open: %s"

OWNED = {
    "transactional.id": "it is the sink's name",
    "bootstrap.servers": "pass bootstrap_servers",
    "metadata.broker.list": "pass bootstrap_servers",
    "enable.idempotence": "transactions need it",
    "group.id": "it is the sink's name",
    "isolation.level": "the marker is read with read_committed",
    "delivery.report.only.error": "the sink takes every report for a failure",
    "default.topic.config": "pass what is in it as options of their own",
    "test.mock.num.brokers": "rows would go to no Kafka at all",
    **dict.fromkeys(
        ("on.delivery", "dr.cb", "dr.msg.cb", "error.cb", "stats.cb", "throttle.cb", "logger"),
        "the sink listens itself; what the client has to say is logged under 'exactly_once_kafka'",
    ),
}
JAVA_NAMES = {
    "sasl.jaas.config": "sasl_username and sasl_password",
    "ssl.truststore.location": "ssl_ca_location (a PEM file)",
    "ssl.keystore.location": "ssl_certificate_location and ssl_key_location (PEM files)",
}
# Unless told otherwise librdkafka waits for an answer as long as for a transaction, in microseconds of 32 bits.
LONGEST_WAIT = 300_000  # milliseconds

# The settings that make a connection: the marker's reader and the topic's creation need them as the producer does.
OF_CONNECTION = (
    "security.",
    "sasl.",
    "ssl.",
    "client.",
    "socket.",
    "broker.address.",
    "enable.ssl.",
    "enable.sasl.",
    "https.",
    "oauth_cb",
)


def require_asserts() -> None:
    """Raise RuntimeError under `python -O`."""
    if not __debug__:
        raise RuntimeError(NO_ASSERTS)


def producer_settings(transactional_id: str, bootstrap_servers: str, options: dict[str, Any]) -> dict[str, Any]:
    """Return librdkafka's settings for one sink.

    Raises ValueError for an option that would break the protocol, RuntimeError under `python -O`.
    """
    require_asserts()
    check_text("bootstrap_servers", bootstrap_servers)
    given = {key.replace("_", "."): value for key, value in options.items()}
    for key, value in given.items():
        if isinstance(value, str) and not is_whole(value):
            raise ValueError(f"{key} has a NUL or a lone surrogate in it: the client would not see all of it")
        if key in OWNED:
            raise ValueError(f"{key} cannot be set: {OWNED[key]}")
        if key in JAVA_NAMES:
            raise ValueError(f"{key} belongs to Kafka's Java client; here use {JAVA_NAMES[key]}")
    if "oauth.cb" in given:
        given["oauth_cb"] = given.pop("oauth.cb")
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
        if float(settings["transaction.timeout.ms"]) > LONGEST_WAIT:
            settings.setdefault("socket.timeout.ms", LONGEST_WAIT)
        settings = with_kept_tokens(settings)
        # Says which option is wrong, and connects to nobody: not even to be given a token.
        Producer({key: value for key, value in settings.items() if key != "oauth_cb"})
    except KafkaException as error:
        raise ValueError(f"a producer option is not usable: {error.args[0].str()}") from error
    except (TypeError, ValueError) as error:
        raise ValueError(f"a producer option is not usable: {error}") from error
    return settings


def connection_settings(settings: dict[str, Any]) -> dict[str, Any]:
    """Return those of a producer's settings that any client needs to be let in."""
    return {key: value for key, value in settings.items() if key.startswith(OF_CONNECTION)}
