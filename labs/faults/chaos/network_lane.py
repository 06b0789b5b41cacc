"""Chaos in the network before a broker: connections are cut, and a commit arrives when its batch is long over."""

from __future__ import annotations

from labs.faults.chaos.journal import Journal
from labs.faults.chaos.lane import Lane
from labs.faults.kafka_framing import Request
from labs.faults.proxy import Proxy

KINDS = {
    "network-cut": "all connections to a broker are cut",
    "late-commit": "an EndTxn is held back, its client cut off, and the EndTxn delivered 1 to 5 s later",
}


class NetworkLane(Lane):
    """Strikes through the proxy."""

    lane_name = "network"

    def __init__(self, kinds: tuple[str, ...], seed: int, journal: Journal, proxy: Proxy):
        super().__init__(kinds, seed, journal)
        self._proxy = proxy

    def strike(self, kind: str) -> None:
        late = self.random.uniform(1, 5)
        if kind == "network-cut":
            self.journal.note(kind)
            self._proxy.cut()
            return
        held = self._proxy.hold_next_request(Request.END_TXN)
        if not self.wait(15, until=lambda: held.struck.is_set() or self.is_calm) or not held.struck.is_set():
            self._proxy.disarm()
            return
        with self.journal.strike(kind) as strike:
            self.wait(late)
            try:
                strike.detail = f"answered {held.deliver().error or 'no error'}"
            except (OSError, TimeoutError) as error:
                strike.detail = f"not delivered: {error}"
