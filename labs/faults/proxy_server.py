"""The faults that strike a message, and the server of a proxy: a thread that listens and owns the connections.

Other threads call the public methods; each method has taken effect when it returns.

A connection has two asyncio tasks: one passes its client's requests, and one the responses to them.
"""

from __future__ import annotations

import asyncio
import itertools
import socket
import threading
from asyncio import StreamReader, StreamWriter
from collections import deque
from collections.abc import AsyncIterator, Callable, Coroutine
from concurrent.futures import Future
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Literal, NamedTuple, Protocol, TypeVar, cast

from labs.faults.kafka_messages import Answer, Request, RequestHeader, correlation_id, read_request
from labs.pipeline.two_phase.end_transaction import LENGTH, read_message

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
        """Send the broker a copy of the request, and return its answer, which the client does not get.

        Raises TimeoutError, OSError.
        """
        self.wait(timeout)
        return self.sender(self, timeout, False)


def exchange(port: int, frame: bytes, timeout: float) -> bytes:
    """Send a request over a new connection to 127.0.0.1 and return the response to it. Raises OSError."""
    with socket.create_connection(("127.0.0.1", port), timeout) as connection, connection.makefile("rb") as responses:
        connection.sendall(frame)
        return read_message(responses)


BUFFER = 1 << 20  # bytes
LARGEST_REQUEST = 100 << 20  # bytes, as in the broker (socket.request.max.bytes)
ENDED = (OSError, EOFError, ValueError)  # ValueError: it was not a Kafka message


class Passage(NamedTuple):
    """A line of the proxy's log: one request or response, and what the proxy did with it.

    `connection` counts from 1 (0: a connection of the proxy's own); `size` is in bytes, the length field included.
    """

    time: datetime
    connection: int
    client_id: str | None
    transactional_id: str | None
    kind: Request
    direction: Direction
    size: int
    done: str


class Sighting(NamedTuple):
    """What a watcher gets of one message: its line of the log, and all of its bytes, with the length.

    `request` is the header of the request, or, for a response, of the request that it answers: the same object, so that
    the two can be matched. `answer` is Kafka's answer to a request that was held and is delivered now.
    """

    passage: Passage
    request: RequestHeader
    frame: bytes
    answer: bytes = b""


class Network(Protocol):
    """What a connection needs from its proxy."""

    def note(self, sighting: Sighting) -> None: ...

    async def connect(self) -> tuple[StreamReader, StreamWriter]: ...

    async def healed(self) -> None: ...

    def strike(self, direction: Direction, request: RequestHeader) -> NetworkFault | None: ...


class ProxiedConnection:
    """Passes messages between one client and a broker connection of its own, until one of them closes."""

    def __init__(self, number: int, reader: StreamReader, writer: StreamWriter, network: Network):
        self._number, self._network = number, network
        self._from_client, self._client = reader, writer
        self._broker: StreamWriter | None = None
        self._unanswered: deque[RequestHeader] = deque()
        self._task = cast(asyncio.Task, asyncio.current_task())

    async def run(self) -> None:
        """Pass messages until the client, the broker, a fault or `cut` ends the connection."""
        pumps: list[asyncio.Task] = []
        try:
            from_broker, self._broker = await self._network.connect()
            passing = self._pass_requests(self._broker), self._pass_responses(from_broker)
            pumps = [asyncio.create_task(each) for each in passing]
            await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
        except OSError:
            pass  # no broker listens: the client finds its connection closed, and tries again
        except asyncio.CancelledError:
            for writer in self._writers():
                writer.transport.abort()
        finally:
            self._hang_up()
            for pump in pumps:
                pump.cancel()
            for error in await asyncio.gather(*pumps, return_exceptions=True):
                if isinstance(error, Exception) and not isinstance(error, ENDED):
                    raise error

    async def cut(self) -> None:
        """End the connection at once; messages in flight are lost."""
        self._task.cancel()
        await asyncio.wait([self._task])

    async def _pass_requests(self, broker: StreamWriter) -> None:
        async for frame in _frames(self._from_client, LARGEST_REQUEST):
            request = read_request(frame)
            await self._network.healed()
            fault = self._network.strike("request", request)
            if isinstance(fault, HeldRequest):
                self._log(request, "request", frame, "held")
                fault.frame = frame
                if fault.cut:
                    return await self._interrupt(fault, self._from_client)
                # The client's next requests wait, as on any TCP connection.
                fault.struck.set()
                answer = await fault.answers.get()
                await _send(answer.frame, self._client)
            elif fault:
                self._log(request, "request", frame, "dropped")
                return await self._interrupt(fault, self._from_client)
            else:
                if request.answered:
                    self._unanswered.append(request)
                self._log(request, "request", frame, "passed")
                await _send(frame, broker)

    async def _pass_responses(self, from_broker: StreamReader) -> None:
        async for frame in _frames(from_broker):
            await self._network.healed()
            request = self._request_of(frame)
            fault = self._network.strike("response", request)
            done = "passed"
            if fault and fault.seconds is not None:
                fault.struck.set()
                await asyncio.sleep(fault.seconds)
                await self._network.healed()
                done = f"delayed {fault.seconds:g} s"
            elif fault:
                self._log(request, "response", frame, "dropped")
                if fault.cut:
                    return await self._interrupt(fault, from_broker)
                return await self._lose_the_rest(fault, from_broker)
            self._log(request, "response", frame, done)
            await _send(frame, self._client)

    def _request_of(self, response: bytes) -> RequestHeader:
        """Find the request that this answers: a broker answers in the order of the requests."""
        answered = correlation_id(response)
        while (request := self._unanswered.popleft()).correlation_id != answered:
            pass
        return request

    async def _interrupt(self, fault: NetworkFault, reader: StreamReader) -> None:
        """Close the connection; or, without `fault.cut`, drop all that follows: TCP delivers nothing after a loss."""
        if fault.cut:
            self._hang_up()
        fault.struck.set()
        while not fault.cut and await reader.read(BUFFER):
            pass

    async def _lose_the_rest(self, fault: NetworkFault, from_broker: StreamReader) -> None:
        """Drop all further answers, and log each as dropped."""
        fault.struck.set()
        async for frame in _frames(from_broker):
            self._log(self._request_of(frame), "response", frame, "dropped")

    def _hang_up(self) -> None:
        for writer in self._writers():
            writer.close()

    def _writers(self) -> list[StreamWriter]:
        return [writer for writer in (self._client, self._broker) if writer]

    def _log(self, request: RequestHeader, direction: Direction, frame: bytes, done: str) -> None:
        who = (self._number, request.client_id, request.transactional_id, request.kind)
        self._network.note(Sighting(Passage(datetime.now(), *who, direction, len(frame), done), request, frame))


async def _frames(reader: StreamReader, largest: int | None = None) -> AsyncIterator[bytes]:
    """Yield message after message, each with its length, until the peer closes (EOFError, OSError)."""
    while True:
        length = await reader.readexactly(LENGTH)
        size = int.from_bytes(length, "big")
        if largest and size > largest:
            raise ValueError(f"a request of {size} bytes is more than a broker takes")
        yield length + await reader.readexactly(size)


async def _send(frame: bytes, writer: StreamWriter) -> None:
    writer.write(frame)
    await writer.drain()


LOG_LENGTH = 20_000  # messages
Fault = TypeVar("Fault", bound=NetworkFault)
Watcher = Callable[[Sighting], object]


class ProxyServer:
    """A listener on 127.0.0.1 and its connections, in an event loop of a daemon thread.

    Raises an error, such as OSError, if it cannot listen.
    """

    def __init__(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self.broker_port: int | None = None
        self._passages: deque[Passage] = deque(maxlen=LOG_LENGTH)
        self._watchers: tuple[Watcher, ...] = ()
        self._armed: list[NetworkFault] = []
        self._armed_lock = threading.Lock()
        self._connections: set[ProxiedConnection] = set()
        self._numbers = itertools.count(1)
        self._forwarding, self._whole, self._closing = asyncio.Event(), asyncio.Event(), asyncio.Event()
        self._whole.set()
        self._loop: asyncio.AbstractEventLoop  # set once it listens
        listening: Future[None] = Future()
        self._thread = threading.Thread(target=self._serve, args=(listening,), name=f"proxy-{self.port}", daemon=True)
        self._thread.start()
        try:
            listening.result()
        except BaseException:
            self._listener.close()
            raise

    @property
    def log(self) -> list[Passage]:
        """The last 20,000 messages, oldest first: `pandas.DataFrame(proxy.log)` makes a table of them."""
        return list(self._passages)

    def forward_to(self, port: int) -> None:
        """Set the port of 127.0.0.1 on which the broker listens."""
        self.broker_port = port
        self._call(self._forwarding.set)

    def arm(self, fault: Fault) -> Fault:
        with self._armed_lock:
            self._armed.append(fault)
        return fault

    def disarm(self) -> None:
        """Remove all faults that have not struck."""
        with self._armed_lock:
            self._armed.clear()

    def cut(self) -> None:
        """Cut all present connections. Clients can open new ones."""
        self._do(self._cut())

    def partition(self) -> None:
        """Pass nothing in either direction until `heal`. Connections stay open, and new ones are accepted."""
        self._call(self._whole.clear)

    def heal(self) -> None:
        """End the partition. The messages that were sent during the partition arrive late."""
        self._call(self._whole.set)

    def answer(self, held: HeldRequest, answer: Answer) -> None:
        """Send the client, if it still waits, the answer to its held request."""
        self._call(held.answers.put_nowait, answer)

    def watch(self, watcher: Watcher) -> None:
        """Call `watcher` with each message from now on, before the message is passed on, in the proxy's own thread.

        It must not call the proxy, must not wait, and must not raise: the connection would end. Without a watcher the
        proxy does not keep or read the messages.
        """
        self._call(lambda: setattr(self, "_watchers", (*self._watchers, watcher)))

    def unwatch(self, watcher: Watcher) -> None:
        """Stop calling `watcher`."""
        if self._thread.is_alive():
            self._call(lambda: setattr(self, "_watchers", tuple(each for each in self._watchers if each != watcher)))

    def tell(self, sighting: Sighting) -> None:
        """Log a message that did not come over a client's connection."""
        self._call(self.note, sighting)

    def close(self) -> None:
        if self._thread.is_alive():
            self._call(self._closing.set)
            self._thread.join()

    # The methods from here to `_cut` run in the server's own thread.

    def strike(self, direction: Direction, request: RequestHeader) -> NetworkFault | None:
        """Disarm and return the first fault that is armed for this message."""
        with self._armed_lock:
            fault = next((each for each in self._armed if each.fits(direction, request)), None)
            if fault:
                self._armed.remove(fault)
                fault.request = request
        return fault

    def note(self, sighting: Sighting) -> None:
        """Log a message and call the watchers, before it is passed on."""
        self._passages.append(sighting.passage)
        for watcher in self._watchers:
            watcher(sighting)

    async def connect(self) -> tuple[StreamReader, StreamWriter]:
        """Connect to the broker, once its port is known and there is no partition. Raises OSError."""
        await self._forwarding.wait()
        await self.healed()
        return await asyncio.open_connection("127.0.0.1", self.broker_port, limit=BUFFER)

    async def healed(self) -> None:
        """Wait while there is a partition."""
        while not self._whole.is_set():
            await self._whole.wait()

    def _serve(self, listening: Future[None]) -> None:
        try:
            asyncio.run(self._listen(listening))
        except Exception as error:
            if listening.done():
                raise
            listening.set_exception(error)  # so that the constructor does not wait forever

    async def _listen(self, listening: Future[None]) -> None:
        self._loop = asyncio.get_running_loop()
        server = await asyncio.start_server(self._accept, sock=self._listener, limit=BUFFER)
        listening.set_result(None)
        await self._closing.wait()
        server.close()
        await self._cut()

    async def _accept(self, reader: StreamReader, writer: StreamWriter) -> None:
        # asyncio does not set it for accepted sockets, and small answers would then wait 40 ms for each other.
        writer.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connection = ProxiedConnection(next(self._numbers), reader, writer, self)
        self._connections.add(connection)
        try:
            await connection.run()
        finally:
            self._connections.discard(connection)

    async def _cut(self) -> None:
        await asyncio.gather(*(connection.cut() for connection in self._connections))

    def _call(self, function: Callable[..., object], *arguments: object) -> None:
        async def call() -> None:
            function(*arguments)

        self._do(call())

    def _do(self, action: Coroutine[Any, Any, None]) -> None:
        if not self._thread.is_alive():
            action.close()
            raise RuntimeError("the proxy is closed: open another one")
        asyncio.run_coroutine_threadsafe(action, self._loop).result()
