"""One fault of the network, armed in a proxy, for one request: what it waits for, and a handle to wait for it."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal

from labs.faults.kafka_framing import LENGTH, Answer, Request, RequestHeader


@dataclass(eq=False)
class NetworkFault:
    """A fault for the next request of `kind`, or for the response to it: it strikes once.

    With `client_id` or `transactional_id` it waits for a request of that client. `struck` is set, and
    `request` says which it was, as soon as it has struck.
    """

    kind: Request
    client_id: str | None = None
    transactional_id: str | None = None
    at: Literal["request", "response"] = "response"
    seconds: float = 0.0
    cut: bool = True
    request: RequestHeader | None = None
    struck: threading.Event = field(default_factory=threading.Event)

    def fits(self, request: RequestHeader) -> bool:
        return (
            self.kind is request.kind
            and self.client_id in (None, request.client_id)
            and self.transactional_id in (None, request.transactional_id)
        )

    def wait(self, timeout: float = 30) -> NetworkFault:
        """Wait until the fault has struck, `timeout` seconds at most. Raises TimeoutError."""
        if not self.struck.wait(timeout):
            who = self.transactional_id or self.client_id or "any client"
            raise TimeoutError(f"no {self.kind} {self.at} of {who} passed the proxy within {timeout:g} s")
        return self


@dataclass(eq=False)
class HeldRequest(NetworkFault):
    """A request that the proxy keeps until `deliver`."""

    frame: bytes = b""
    _send: Callable[[HeldRequest, float], Answer] | None = None
    _delivered: bool = False

    def deliver(self, timeout: float = 30) -> Answer:
        """Let the broker have the request now, and return its answer.

        It arrives over a connection of its own, as from a network that kept it too long. Waits for a request
        to hold, and for the answer, `timeout` seconds at most each. Raises TimeoutError, ConnectionError.
        """
        self.wait(timeout)
        if self._delivered:
            raise RuntimeError(f"this {self.kind} request was delivered before; a request can be late only once")
        self._delivered = True
        return self._send(self, timeout)


def exchange(port: int, frame: bytes, timeout: float) -> bytes:
    """Send one request over a new connection to 127.0.0.1 and return the response. Raises TimeoutError, OSError."""
    with socket.create_connection(("127.0.0.1", port), timeout) as connection, connection.makefile("rb") as answers:
        connection.sendall(frame)
        length = answers.read(LENGTH)
        content = answers.read(int.from_bytes(length, "big"))
    if not content:
        raise ConnectionError(f"the broker on port {port} closed the connection instead of answering")
    return length + content
