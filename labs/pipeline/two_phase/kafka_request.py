"""One request to one broker over a connection of its own: Kafka's protocol with nothing in between.

kafka-python's protocol classes write the request and read the response. Where it stops: plain text only,
neither TLS nor SASL.
"""

from __future__ import annotations

import itertools
import socket
import time
from collections.abc import Callable
from typing import Any, BinaryIO, TypeVar

from kafka.errors import KafkaError, for_code
from kafka.protocol.metadata import (
    ApiVersionsRequest,
    ApiVersionsResponse,
    CoordinatorType,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)

LENGTH = 4  # bytes in front of each message
CLIENT_ID = "labs-two-phase"
BETWEEN_RETRIES = 0.05  # seconds
A_MOMENT, ANSWER = 0.5, 5.0  # seconds for one answer of a broker

Answer = TypeVar("Answer")


class BrokerConnection:
    """A connection to the broker at `address` (host:port). Raises OSError whenever the broker cannot be reached."""

    def __init__(self, address: str, timeout: float = ANSWER, client_id: str = CLIENT_ID):
        host, _, port = address.rpartition(":")
        self._socket = socket.create_connection((host.strip("[]"), int(port)), timeout)
        self._responses: BinaryIO = self._socket.makefile("rb")
        self._correlation_ids, self._client_id = itertools.count(), client_id

    def ask(self, request: Any, response: type[Any], version: int) -> Any:
        """Send a request in this version of its kind and return the response to it."""
        request.with_header(correlation_id=next(self._correlation_ids), client_id=self._client_id)
        self._socket.sendall(request.encode(version=version, header=True, framed=True))
        length = self._responses.read(LENGTH)
        content = self._responses.read(int.from_bytes(length, "big"))
        if not content:
            raise ConnectionError("the broker hung up instead of answering")
        return response.decode(length + content, version=version, header=True, framed=True)

    def features(self) -> dict[str, int]:
        """Return the features that the cluster has enabled, each with its level, such as transaction.version: 2."""
        return {feature.name: feature.max_version_level for feature in self._offers().finalized_features}

    def newest_version(self, request: type[Any]) -> int:
        """Return the newest version in which the broker takes such a request, -1 if in none."""
        return next((each.max_version for each in self._offers().api_keys if each.api_key == request.API_KEY), -1)

    def _offers(self) -> Any:
        request = ApiVersionsRequest(client_software_name=CLIENT_ID, client_software_version="1")
        return self.ask(request, ApiVersionsResponse, version=3)

    def close(self) -> None:
        self._responses.close()
        self._socket.close()

    def __enter__(self) -> BrokerConnection:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def transaction_coordinator(bootstrap_servers: str, transactional_id: str) -> BrokerConnection:
    """Connect to the broker that coordinates the transactions of this id. Raises OSError, KafkaError."""
    found = _first_answer(bootstrap_servers, transactional_id)
    if found.error_code:
        raise for_code(found.error_code)(f"no coordinator for {transactional_id!r}: {found.error_message}")
    return BrokerConnection(f"{found.host}:{found.port}")


def _first_answer(bootstrap_servers: str, transactional_id: str) -> FindCoordinatorResponse:
    """Ask one broker after the other, each for a moment and then each for longer: a frozen one accepts, and is mute."""
    addresses = bootstrap_servers.split(",")
    waits = (A_MOMENT, ANSWER) if len(addresses) > 1 else (ANSWER,)
    for seconds, address in itertools.product(waits, addresses):
        try:
            with BrokerConnection(address, seconds) as broker:
                request = FindCoordinatorRequest(key=transactional_id, key_type=CoordinatorType.TRANSACTION.value)
                return broker.ask(request, FindCoordinatorResponse, version=3)
        except OSError as error:
            last = error
    raise last


def patiently(attempt: Callable[[], Answer], timeout: float, doubt: str) -> Answer:
    """Repeat what fails because a broker is away, moving or busy, for `timeout` seconds.

    Raises TimeoutError, which begins with `doubt` and names the last failure; other errors as they come.
    """
    deadline = time.monotonic() + timeout
    while True:
        try:
            return attempt()
        except (KafkaError, OSError) as error:
            if isinstance(error, KafkaError) and not error.retriable:
                raise
            if time.monotonic() > deadline:
                last = f"{type(error).__name__}: {error}"
                raise TimeoutError(f"{doubt} after {timeout:g} s; the last try ended in {last}") from error
        time.sleep(BETWEEN_RETRIES)
