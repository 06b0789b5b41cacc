"""Translates the sink's settings from librdkafka's names to kafka-python's, and to an `Encoding`."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from kafka.errors import KafkaError
from kafka.net.sasl.oauth import AbstractTokenProvider
from pyspark import cloudpickle

from exactly_once_kafka.kafka_client.record_batch import LARGEST
from exactly_once_kafka.oauth_tokens import KeptToken, Token


class NoToken(KafkaError):  # type: ignore[misc]  # kafka-python comes without types
    """`oauth_cb` raised an error, or returned something else than a token."""


class TokenProvider(AbstractTokenProvider):  # type: ignore[misc]  # kafka-python comes without types
    """Gets tokens from `oauth_cb(config)`. Tasks get a copy, with the driver's token.

    Its repr is the same in every copy, because `kept_cluster` finds a client by it, and does not show the token.
    """

    def __init__(self, oauth_cb: Callable[[str], Token], config: str):
        self._oauth_cb, self._config = oauth_cb, config
        self._name = uuid.uuid4().hex

    def token(self) -> str:
        return self._token()[0]

    def extensions(self) -> dict[str, str]:
        """Return the extensions of (token, expiry, principal, extensions), if the tuple has them."""
        return self._token()[1]

    def _token(self) -> tuple[str, dict[str, str]]:
        """Raises NoToken: kafka-python's own threads and callers expect no other errors than a KafkaError."""
        try:
            token = self._oauth_cb(self._config)
            return str(token[0]), dict(token[3] or {}) if len(token) > 3 else {}
        except Exception as error:
            raise NoToken(f"oauth_cb raised {type(error).__name__}: {error}") from error

    def renew(self, of_task: TokenProvider) -> None:
        """Take the token that a later task brings from the driver, if it expires later."""
        if isinstance(self._oauth_cb, KeptToken) and isinstance(of_task._oauth_cb, KeptToken):
            self._oauth_cb.renew(of_task._oauth_cb)

    def __repr__(self) -> str:
        return f"tokens {self._name}"


NAMES = {
    "bootstrap.servers": "bootstrap_servers",
    "client.id": "client_id",
    "security.protocol": "security_protocol",
    "ssl.ca.location": "ssl_cafile",
    "ssl.certificate.location": "ssl_certfile",
    "ssl.key.location": "ssl_keyfile",
    "ssl.key.password": "ssl_password",
    "sasl.mechanism": "sasl_mechanism",
    "sasl.mechanisms": "sasl_mechanism",
    "sasl.username": "sasl_plain_username",
    "sasl.password": "sasl_plain_password",
}
OF_LOGIN = ("security.", "sasl.", "ssl.", "enable.ssl.", "enable.sasl.")
UNDERSTOOD = {*NAMES, "ssl.endpoint.identification.algorithm", "sasl.oauthbearer.config"}
PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER")


def kafka_python_settings(settings: dict[str, Any]) -> dict[str, Any]:
    """Return kafka-python's settings of a connection. Raises ValueError for one that it does not support."""
    # As text, as librdkafka takes them: kafka-python fails with a password that is a number.
    connection: dict[str, Any] = {NAMES[key]: str(value) for key, value in settings.items() if key in NAMES}
    unknown = [key for key in settings if key.startswith(OF_LOGIN) and key not in UNDERSTOOD]
    if unknown:
        raise ValueError(f"kafka-python cannot connect with {', '.join(unknown)}")
    if (family := settings.get("broker.address.family", "any")) != "any":
        raise ValueError(f"kafka-python connects by any address family, and broker.address.family is {family!r}")
    authority = connection.get("ssl_cafile")
    if authority and (authority == "probe" or Path(authority).is_dir()):
        raise ValueError(f"kafka-python takes certificates from a file, and ssl.ca.location is {authority!r}")
    if connection.get("sasl_mechanism", "PLAIN") not in MECHANISMS:
        raise ValueError(f"kafka-python cannot log in by {connection['sasl_mechanism']}")
    if connection.get("sasl_mechanism") == "OAUTHBEARER":
        if "oauth_cb" not in settings:
            raise ValueError(
                "kafka-python logs in by OAUTHBEARER only with oauth_cb, or as a client with a secret (oidc)"
            )
        connection["sasl_oauth_token_provider"] = _provider(settings)
    is_scram = connection.get("sasl_mechanism", "").startswith("SCRAM")
    if is_scram and not set(",=").isdisjoint(connection.get("sasl_plain_username", "")):
        raise ValueError("kafka-python cannot log in by SCRAM as a user with a comma or an equals sign in its name")
    if "security_protocol" in connection:
        connection["security_protocol"] = connection["security_protocol"].upper()
        if connection["security_protocol"] not in PROTOCOLS:  # kafka-python would take it for PLAINTEXT
            raise ValueError(f"kafka-python knows no security.protocol {connection['security_protocol']!r}")
    if str(settings.get("ssl.endpoint.identification.algorithm", "https")).lower() == "none":
        connection["ssl_check_hostname"] = False
    return connection


def _provider(settings: dict[str, Any]) -> TokenProvider:
    provider = TokenProvider(settings["oauth_cb"], settings.get("sasl.oauthbearer.config", ""))
    try:
        cloudpickle.dumps(provider)  # type: ignore[no-untyped-call]
    except Exception as error:
        raise ValueError(f"oauth_cb cannot be sent to executors: {error}") from error
    return provider


PARTITIONERS = ("murmur2", "murmur2_random")


class Encoding(NamedTuple):
    """How record batches are made: with at most `largest` bytes before compression, but with at least one row."""

    largest: int = LARGEST
    compression: str = "none"


def encoding_of(settings: dict[str, Any]) -> Encoding:
    """Return how to make record batches. Raises ValueError for a setting that executors cannot follow."""
    partitioner = settings.get("partitioner", PARTITIONERS[0])
    if partitioner not in PARTITIONERS:
        raise ValueError(f"executors place keys as Java clients do (murmur2), not by partitioner {partitioner!r}")
    bounds = [int(settings[name]) for name in ("message.max.bytes", "batch.size") if name in settings]
    codecs = [str(settings[name]).lower() for name in ("compression.type", "compression.codec") if name in settings]
    return Encoding(min([LARGEST, *bounds]), codecs[0] if codecs else "none")
