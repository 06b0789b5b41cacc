"""One client's connection through the proxy: a pump for its requests and one for the responses to them."""

from __future__ import annotations

import asyncio
from asyncio import StreamReader, StreamWriter
from collections import deque
from collections.abc import AsyncIterator
from datetime import datetime
from typing import NamedTuple, Protocol, cast

from labs.faults.kafka_framing import LENGTH, Request, RequestHeader, correlation_id, read_request
from labs.faults.network_fault import Direction, HeldRequest, NetworkFault

BUFFER = 1 << 20  # bytes
LARGEST_REQUEST = 100 << 20  # bytes, as in the broker (socket.request.max.bytes)
ENDED = (OSError, EOFError, ValueError)  # ValueError: what came was not Kafka


class Passage(NamedTuple):
    """A line of the proxy's log: one request or response, and what was done to it.

    `connection` counts from 1 (0: a connection of the proxy's own), `size` is in bytes with the length.
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
    """What who watches is shown of one message: its line of the log, and all of its bytes, with the length.

    `request` is the header of the request, or of the one that is answered: the very same object, by which the two are
    found to belong together. `answer` is Kafka's answer to a request that was held, and is delivered now.
    """

    passage: Passage
    request: RequestHeader
    frame: bytes
    answer: bytes = b""


class Network(Protocol):
    """What a connection asks of the network that it passes through."""

    def note(self, sighting: Sighting) -> None: ...

    async def connect(self) -> tuple[StreamReader, StreamWriter]: ...

    async def healed(self) -> None: ...

    def strike(self, direction: Direction, request: RequestHeader) -> NetworkFault | None: ...


class ProxiedConnection:
    """Passes messages between one client and a broker connection of its own, until one of them hangs up."""

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
            pass  # no broker there: the client finds its connection closed, and tries again
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
        """End the connection at once, with whatever is on its way."""
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
                # What the client sends next waits behind it, as on any TCP connection.
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
        """Find the request that this answers: a broker answers in the order in which it was asked."""
        answered = correlation_id(response)
        while (request := self._unanswered.popleft()).correlation_id != answered:
            pass
        return request

    async def _interrupt(self, fault: NetworkFault, reader: StreamReader) -> None:
        """Hang up; or be silent in this direction from now on, as TCP delivers nothing that follows a loss."""
        if fault.cut:
            self._hang_up()
        fault.struck.set()
        while not fault.cut and await reader.read(BUFFER):
            pass

    async def _lose_the_rest(self, fault: NetworkFault, from_broker: StreamReader) -> None:
        """Be silent towards the client from now on, and say of each answer that it is lost."""
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
    """Yield message after message, each with its length, until the peer hangs up (EOFError, OSError)."""
    while True:
        length = await reader.readexactly(LENGTH)
        size = int.from_bytes(length, "big")
        if largest and size > largest:
            raise ValueError(f"a request of {size} bytes is more than a broker takes")
        yield length + await reader.readexactly(size)


async def _send(frame: bytes, writer: StreamWriter) -> None:
    writer.write(frame)
    await writer.drain()
