"""The network of a replay: requests that the proxy keeps back, and delivers late, twice or never."""

from __future__ import annotations

from typing import NamedTuple

from labs.faults.kafka_contents import said
from labs.faults.proxy import HeldRequest, Proxy, Request
from labs.schedules.replay.bench import PATIENCE
from labs.schedules.replay.driver import Step

KINDS = {
    "fence": Request.INIT_PRODUCER_ID,
    "row": Request.PRODUCE,
    "marker": Request.PRODUCE,
    "commit": Request.END_TXN,
}


class Sent(NamedTuple):
    """A request under way: whose it is, and for which of its steps."""

    driver: str
    step: Step


class Network:
    """What is under way between the drivers of one replay and Kafka."""

    def __init__(self, proxy: Proxy):
        self._proxy = proxy
        self._held: dict[Sent, HeldRequest] = {}
        self._delivered: set[Sent] = set()

    def hold_next(self, action: str, client: str) -> HeldRequest:
        """Have the proxy keep back the client's next request of a kind. Raises RuntimeError for what is none."""
        if action not in KINDS:
            raise RuntimeError("this cannot be held: it is not one request, or none at all")
        return self._proxy.hold_next_request(KINDS[action], cut_client=False, client_id=client)

    def keep(self, sent: Sent, held: HeldRequest) -> None:
        """Wait until the request is there, and keep it. Raises TimeoutError."""
        held.wait(PATIENCE)
        self._held[sent] = held
        self._delivered.discard(sent)  # a program may commit twice for a batch

    def was_delivered(self, sent: Sent) -> bool:
        return sent in self._delivered

    def deliver(self, sent: Sent) -> str:
        """Deliver a request, once more if it has been before, and return what Kafka says. Raises RuntimeError."""
        held, again = self._kept(sent), sent in self._delivered
        self._delivered.add(sent)
        answer = held.repeat() if again else held.deliver()
        return said(answer.error_code or 0)

    def lose(self, sent: Sent) -> None:
        """Never deliver it. Raises RuntimeError if it is not under way."""
        self._kept(sent)
        del self._held[sent]

    def _kept(self, sent: Sent) -> HeldRequest:
        if sent not in self._held:
            raise RuntimeError(f"{sent.driver} has no such request under way")
        return self._held[sent]
