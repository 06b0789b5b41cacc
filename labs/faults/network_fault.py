"""A fault of the network: the message that it waits for, what it does to that, and a wait until it has."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal

from labs.faults.kafka_messages import LENGTH, Answer, Request, RequestHeader

Direction = Literal["request", "response"]


@dataclass(eq=False, kw_only=True)
class NetworkFault:
    """A fault that strikes once: the next request of `kind`, or the next response to one.

    `client_id` or `transactional_id` restrict it to one client, `not_client_id` to all but one. If `seconds` are given,
    it delays the message; otherwise the message is lost, and with `cut` its connection too. When it has struck,
    `struck` is set, and `request` is the header of the request that it struck.
    """

    kind: Request
    direction: Direction
    cut: bool
    seconds: float | None = None
    client_id: str | None = None
    not_client_id: str | None = None
    transactional_id: str | None = None
    request: RequestHeader | None = None
    struck: threading.Event = field(default_factory=threading.Event, repr=False)

    def __post_init__(self) -> None:
        if not isinstance(self.kind, Request):
            raise TypeError(f"a fault needs a kind of request, such as Request.PRODUCE, not {self.kind!r}")
        if self.seconds is not None and self.seconds < 0:
            raise ValueError(f"a delay takes 0 seconds or more, not {self.seconds:g}")

    def fits(self, direction: Direction, request: RequestHeader) -> bool:
        """Tell whether this is a message to strike."""
        return (
            (self.direction, self.kind) == (direction, request.kind)
            and self.client_id in (None, request.client_id)
            and (self.not_client_id is None or self.not_client_id != request.client_id)
            and self.transactional_id in (None, request.transactional_id)
        )

    def wait(self, timeout: float = 30) -> NetworkFault:
        """Wait until the fault has struck, `timeout` seconds at most, and return it. Raises TimeoutError."""
        if not self.struck.wait(timeout):
            who = self.transactional_id or self.client_id or "any client"
            raise TimeoutError(f"no {self.kind} {self.direction} of {who} came through the proxy within {timeout:g} s")
        return self


@dataclass(eq=False, kw_only=True)
class HeldRequest(NetworkFault):
    """A request that the proxy holds back until `deliver`."""

    sender: Callable[[HeldRequest, float, bool], Answer] = field(repr=False)
    frame: bytes = field(default=b"", repr=False)
    answers: asyncio.Queue[Answer] = field(default_factory=asyncio.Queue, repr=False)
    _delivered: bool = field(default=False, repr=False)

    def deliver(self, timeout: float = 30) -> Answer:
        """Send the broker the request now, and return its answer.

        It goes over a new connection, like a request that the network has delayed. Waits at most `timeout` seconds
        until a request is held, and again for the answer. Raises TimeoutError, OSError.
        """
        self.wait(timeout)
        if self._delivered:
            raise RuntimeError(f"this {self.kind} request was delivered already: use repeat() to send a copy")
        self._delivered = True
        return self.sender(self, timeout, True)

    def repeat(self, timeout: float = 30) -> Answer:
        """Send the broker a copy of the request, and return its answer; the client does not get that.

        Raises TimeoutError, OSError.
        """
        self.wait(timeout)
        return self.sender(self, timeout, False)


def exchange(port: int, frame: bytes, timeout: float) -> bytes:
    """Send a request over a new connection to 127.0.0.1 and return the response to it. Raises OSError."""
    with socket.create_connection(("127.0.0.1", port), timeout) as connection, connection.makefile("rb") as responses:
        connection.sendall(frame)
        length = responses.read(LENGTH)
        content = responses.read(int.from_bytes(length, "big"))
    if not content:
        raise ConnectionError(f"the broker at 127.0.0.1:{port} hung up instead of answering")
    return length + content
