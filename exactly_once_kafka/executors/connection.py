"""The sink's settings for a connection, which have librdkafka's names, by the names of kafka-python."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pyspark import cloudpickle

from exactly_once_kafka.executors.token_provider import TokenProvider

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
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER")


def for_executors(settings: dict[str, Any]) -> dict[str, Any]:
    """Return kafka-python's settings of a connection. Raises ValueError for one that it has no like of."""
    connection = {NAMES[key]: value for key, value in settings.items() if key in NAMES}
    unknown = [key for key in settings if key.startswith(OF_LOGIN) and key not in UNDERSTOOD]
    if unknown:
        raise ValueError(f"executors cannot connect with {', '.join(unknown)}")
    if (family := settings.get("broker.address.family", "any")) != "any":
        raise ValueError(f"executors connect by any address family, and broker.address.family is {family!r}")
    authority = connection.get("ssl_cafile")
    if authority and (authority == "probe" or Path(authority).is_dir()):
        raise ValueError(f"executors take certificates from a file, and ssl.ca.location is {authority!r}")
    if connection.get("sasl_mechanism", "PLAIN") not in MECHANISMS:
        raise ValueError(f"executors cannot log in by {connection['sasl_mechanism']}")
    if connection.get("sasl_mechanism") == "OAUTHBEARER":
        if "oauth_cb" not in settings:
            raise ValueError("executors log in by OAUTHBEARER only with oauth_cb, or as a client with a secret (oidc)")
        connection["sasl_oauth_token_provider"] = _provider(settings)
    if "security_protocol" in connection:
        connection["security_protocol"] = connection["security_protocol"].upper()
    if str(settings.get("ssl.endpoint.identification.algorithm")).lower() == "none":
        connection["ssl_check_hostname"] = False
    return connection


def _provider(settings: dict[str, Any]) -> TokenProvider:
    provider = TokenProvider(settings["oauth_cb"], settings.get("sasl.oauthbearer.config", ""))
    try:
        cloudpickle.dumps(provider)  # type: ignore[no-untyped-call]
    except Exception as error:
        raise ValueError(f"oauth_cb cannot be taken along to executors: {error}") from error
    return provider
