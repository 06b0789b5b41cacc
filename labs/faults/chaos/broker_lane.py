"""Chaos among the brokers: one at a time is killed, frozen, or restarted."""

from __future__ import annotations

from labs.equipment.broker import Broker
from labs.faults.chaos.journal import Journal
from labs.faults.chaos.lane import Lane

KINDS = {
    "broker-kill": "SIGKILL of a broker, which comes back after 0 to 4 s",
    "broker-pause": "SIGSTOP of a broker, and SIGCONT after 2 to 12 s",
    "broker-restart": "a clean restart of a broker",
}


class BrokerLane(Lane):
    """Strikes one node at a time, and mends it before it strikes the next."""

    lane_name = "broker"

    def __init__(self, kinds: tuple[str, ...], seed: int, journal: Journal, broker: Broker):
        super().__init__(kinds, seed, journal)
        self._broker = broker

    def strike(self, kind: str) -> None:
        node = self.random.randrange(len(self._broker.nodes))
        away = self.random.uniform(0, 4) if kind == "broker-kill" else self.random.uniform(2, 12)
        with self.journal.strike(kind, f"node {node}"):
            if kind == "broker-kill":
                self._broker.kill(node)
                self.wait(away)
                self._broker.start(node)
            elif kind == "broker-pause":
                self._broker.pause(node)
                self.wait(away)
                self._broker.resume(node)
            else:
                self._broker.restart(node)
