"""The thread behind a proxy: it listens, owns the connections, and keeps what they share.

Other threads call the public methods; each has taken effect when it returns.
"""

from __future__ import annotations

import asyncio
import itertools
import socket
import threading
from asyncio import StreamReader, StreamWriter
from collections import deque
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from typing import Any, TypeVar

from labs.faults.kafka_framing import Answer, RequestHeader
from labs.faults.network_fault import Direction, HeldRequest, NetworkFault
from labs.faults.proxied_connection import BUFFER, Passage, ProxiedConnection, Sighting

LOG_LENGTH = 20_000  # messages
Fault = TypeVar("Fault", bound=NetworkFault)
Watcher = Callable[[Sighting], object]


class ProxyServer:
    """A listener on 127.0.0.1 and its connections, in an event loop of a daemon thread.

    Raises what keeps it from listening, such as OSError.
    """

    def __init__(self, port: int):
        self._listener = socket.create_server(("127.0.0.1", port))
        self.port: int = self._listener.getsockname()[1]
        self.broker_port: int | None = None
        self.log: deque[Passage] = deque(maxlen=LOG_LENGTH)
        self._watchers: tuple[Watcher, ...] = ()
        self._armed: list[NetworkFault] = []
        self._armed_lock = threading.Lock()
        self._connections: set[ProxiedConnection] = set()
        self._numbers = itertools.count(1)
        self._forwarding, self._whole, self._closing = asyncio.Event(), asyncio.Event(), asyncio.Event()
        self._whole.set()
        self._loop: asyncio.AbstractEventLoop  # there once it listens
        listening: Future[None] = Future()
        self._thread = threading.Thread(target=self._serve, args=(listening,), name=f"proxy-{self.port}", daemon=True)
        self._thread.start()
        try:
            listening.result()
        except BaseException:
            self._listener.close()
            raise

    def forward_to(self, port: int) -> None:
        self.broker_port = port
        self._call(self._forwarding.set)

    def arm(self, fault: Fault) -> Fault:
        with self._armed_lock:
            self._armed.append(fault)
        return fault

    def disarm(self) -> None:
        with self._armed_lock:
            self._armed.clear()

    def cut(self) -> None:
        self._do(self._cut())

    def partition(self) -> None:
        self._call(self._whole.clear)

    def heal(self) -> None:
        self._call(self._whole.set)

    def answer(self, held: HeldRequest, answer: Answer) -> None:
        """Give the client, if it still waits, the answer to its held request."""
        self._call(held.answers.put_nowait, answer)

    def watch(self, watcher: Watcher) -> None:
        self._call(lambda: setattr(self, "_watchers", (*self._watchers, watcher)))

    def unwatch(self, watcher: Watcher) -> None:
        if self._thread.is_alive():
            self._call(lambda: setattr(self, "_watchers", tuple(each for each in self._watchers if each != watcher)))

    def tell(self, sighting: Sighting) -> None:
        """Note a message that did not come over a connection of a client's."""
        self._call(self.note, sighting)

    def close(self) -> None:
        if self._thread.is_alive():
            self._call(self._closing.set)
            self._thread.join()

    # What follows runs in the server's own thread.

    def strike(self, direction: Direction, request: RequestHeader) -> NetworkFault | None:
        """Return the first fault armed for this message, which is then no longer armed."""
        with self._armed_lock:
            fault = next((each for each in self._armed if each.fits(direction, request)), None)
            if fault:
                self._armed.remove(fault)
                fault.request = request
        return fault

    def note(self, sighting: Sighting) -> None:
        """Write a message into the log, and show it to who watches, before it goes on."""
        self.log.append(sighting.passage)
        for watcher in self._watchers:
            watcher(sighting)

    async def connect(self) -> tuple[StreamReader, StreamWriter]:
        """Connect to the broker, as soon as there is one that can be reached. Raises OSError."""
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
            listening.set_exception(error)  # nobody shall wait for what will not come

    async def _listen(self, listening: Future[None]) -> None:
        self._loop = asyncio.get_running_loop()
        server = await asyncio.start_server(self._accept, sock=self._listener, limit=BUFFER)
        listening.set_result(None)
        await self._closing.wait()
        server.close()
        await self._cut()

    async def _accept(self, reader: StreamReader, writer: StreamWriter) -> None:
        # asyncio forgets it for accepted sockets, and small answers would then wait 40 ms for each other.
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
