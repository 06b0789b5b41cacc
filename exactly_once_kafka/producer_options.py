"""The options of a sink: librdkafka's producer settings, without those that the protocol depends on."""

from __future__ import annotations

import logging
from typing import Any

from confluent_kafka import KafkaException, Producer

from exactly_once_kafka.names import check_text, is_whole
from exactly_once_kafka.oauth_tokens import with_kept_tokens

LOGGER = logging.getLogger("exactly_once_kafka")  # without a handler, Python prints its warnings
# librdkafka's messages go to Python's logging. They are dropped unless the application adds a handler.
OF_LIBRDKAFKA = LOGGER.getChild("librdkafka")
OF_LIBRDKAFKA.addHandler(logging.NullHandler())
NO_ASSERTS = (
    "this Python skips every `assert`, and kafka-python cannot read Kafka's answers without them; unset "
    "PYTHONOPTIMIZE, or run Python without -O"
)
CHECK_SKIPPED = "sink %r cannot check whether Kafka leaves rows open: %s"

RESERVED_OPTIONS = {
    "transactional.id": "it is the sink's name",
    "bootstrap.servers": "pass bootstrap_servers",
    "metadata.broker.list": "pass bootstrap_servers",
    "enable.idempotence": "transactions need it",
    "group.id": "it is the sink's name",
    "isolation.level": "the marker is read with read_committed",
    "delivery.report.only.error": "the sink treats every report as a failure",
    "default.topic.config": "pass each setting in it as an option",
    "test.mock.num.brokers": "rows would not go to a real Kafka",
    **dict.fromkeys(
        ("on.delivery", "dr.cb", "dr.msg.cb", "error.cb", "stats.cb", "throttle.cb", "logger"),
        "the sink sets its own; the client's messages are logged under 'exactly_once_kafka.librdkafka'",
    ),
}
# librdkafka skips blanks in front of these, and kafka-python would take such a value for another one.
WORDS = {
    "security.protocol",
    "sasl.mechanism",
    "sasl.mechanisms",
    "ssl.endpoint.identification.algorithm",
    "broker.address.family",
    "compression.type",
    "compression.codec",
    "partitioner",
}
JAVA_NAMES = {
    "sasl.jaas.config": "sasl_username and sasl_password",
    "ssl.truststore.location": "ssl_ca_location (a PEM file)",
    "ssl.keystore.location": "ssl_certificate_location and ssl_key_location (PEM files)",
}
# By default librdkafka waits for an answer about as long as transaction.timeout.ms says. It counts that time in
# microseconds of 32 bits: a long one would overflow.
LONGEST_WAIT = 300_000  # milliseconds

# Prefixes of the settings of a connection, which the marker's reader and the admin client need too.
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
    """Raise RuntimeError under `python -O`, which skips every `assert`."""
    if not __debug__:
        raise RuntimeError(NO_ASSERTS)


def with_dots(options: dict[str, Any]) -> dict[str, Any]:
    """Return the options under librdkafka's names, which have dots where Python's keywords have underscores."""
    return {key.replace("_", "."): value for key, value in options.items()}


def producer_settings(transactional_id: str, bootstrap_servers: str, options: dict[str, Any]) -> dict[str, Any]:
    """Return librdkafka's settings for one sink.

    Raises ValueError for an option that would break the protocol, RuntimeError under `python -O`.
    """
    require_asserts()
    check_text("bootstrap_servers", bootstrap_servers)
    given = with_dots(options)
    for key, value in given.items():
        if isinstance(value, str) and not is_whole(value):
            raise ValueError(f"{key} has a NUL or a lone surrogate in it: the client would not read all of it")
        if key in WORDS and str(value) != str(value).strip():
            raise ValueError(f"{key} is {value!r}: leave out the blanks")
        if key in RESERVED_OPTIONS:
            raise ValueError(f"{key} cannot be set: {RESERVED_OPTIONS[key]}")
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
        # A topic that somebody has deleted must be missed, and not made anew by the question for it.
        "allow.auto.create.topics": False,
        "message.max.bytes": 1_048_588,  # as a topic's max.message.bytes; the client's own limit is lower
        "partitioner": "murmur2_random",  # as Spark's own writer and every Java client
        "delivery.report.only.error": True,
        "logger": OF_LIBRDKAFKA,
        # Without a callback, the call after the one that failed would also raise a fatal error.
        "error_cb": lambda error: None,
        **given,
        "transactional.id": transactional_id,
        "bootstrap.servers": bootstrap_servers,
    }
    try:
        if float(settings["transaction.timeout.ms"]) > LONGEST_WAIT:
            settings.setdefault("socket.timeout.ms", LONGEST_WAIT)
        settings = with_kept_tokens(settings)
        # This raises for an option that is wrong. The producer sends nothing, and does not even get a token.
        Producer({key: value for key, value in settings.items() if key != "oauth_cb"})
    except KafkaException as error:
        raise ValueError(f"a producer option is not usable: {error.args[0].str()}") from error
    except (TypeError, ValueError, OSError) as error:  # OSError: a file of certificates
        raise ValueError(f"a producer option is not usable: {error}") from error
    return settings


def connection_settings(settings: dict[str, Any]) -> dict[str, Any]:
    """Return those of a producer's settings that any client needs to connect."""
    return {key: value for key, value in settings.items() if key.startswith(OF_CONNECTION)}
