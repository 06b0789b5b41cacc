"""A forged answer, as a single broker gives it last before it shuts down; librdkafka then loses its brokers for good.

With a broker's own answer that happens only now and then, on a busy machine.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from kafka.protocol.metadata import MetadataResponse

from labs.equipment.waiting import eventually
from labs.faults.kafka_messages import Request
from labs.faults.proxy_server import ProxiedConnection, _frames, _send

OFTEN: dict[str, Any] = {"topic.metadata.refresh.interval.ms": 500}  # for a client that is to get it
TOPIC = MetadataResponse.MetadataResponseTopic
OTHERS = 50_000  # topics: the client works at the answer for a while, as on a busy machine


class LastAnswer(ProxiedConnection):
    """Takes the place of `proxy_server.ProxiedConnection`. While `armed`, it answers librdkafka's next request for
    metadata without brokers, and hangs up.
    """

    armed, given = threading.Event(), threading.Event()

    @classmethod
    def strike(cls) -> None:
        """Give the next client that asks for metadata its last answer."""
        cls.given.clear()
        cls.armed.set()
        assert cls.given.wait(30), "no client asked for metadata"

    @classmethod
    def strike_until(cls, lost: Callable[[], object]) -> None:
        """Give last answers until one has led to the loss: that is a race between two threads of the client."""

        def struck() -> object:
            cls.strike()
            return eventually(lost, timeout=8)

        eventually(struck, timeout=90)

    async def _pass_responses(self, from_broker):
        async for frame in _frames(from_broker):
            request = self._request_of(frame)
            if last := request.kind is Request.METADATA and request.client_id == "rdkafka" and self.armed.is_set():
                self.armed.clear()
                frame = without_brokers(frame, request.version)
            await _send(frame, self._client)
            if last:
                self.given.set()
                return


def without_brokers(frame: bytes, version: int) -> bytes:
    answer = MetadataResponse.decode(frame, version=version, header=True, framed=True)
    answer.brokers = []
    answer.topics += [TOPIC(version=version, name=f"other-{number}", partitions=[]) for number in range(OTHERS)]
    return answer.encode(header=True, framed=True)
