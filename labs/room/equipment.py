"""The room's equipment: Kafka behind a proxy, and one directory for all files.

Guarantee: no process or file outlives `close` or this process, however this process ends: a `ChildReaper` watches over
each process, and over the directory. Limitations: with several brokers, only connections to the first one pass through
the proxy.

The proxy can stop passing data on, or hold one commit and deliver it late.
"""

from __future__ import annotations

import threading
from contextlib import ExitStack
from typing import Any

from labs.equipment.broker import BrokerError
from labs.equipment.child_process import temporary_directory
from labs.faults.kafka_messages import ENDING, FENCED, read_end, read_ended
from labs.faults.proxy import HeldRequest, Proxy, Request, proxied_broker


class RoomEquipment:
    """Starts `nodes` brokers and waits for them. Raises BrokerError, OSError."""

    def __init__(self, nodes: int):
        self.trouble = ""  # why a broker did not start
        self._stack = ExitStack()
        self._frozen: set[int] = set()
        self._starting: set[int] = set()
        try:
            self.directory = self._stack.enter_context(temporary_directory("labs-room-"))
            broker, proxy = self._stack.enter_context(proxied_broker(nodes=nodes, directory=self.directory / "kafka"))
            self._stack.callback(broker.kill)  # faster than a clean stop, and its data is not needed any more
            self.broker, self.proxy = broker, proxy
        except BaseException:
            self._stack.close()
            raise

    @property
    def nodes(self) -> int:
        return len(self.broker.nodes)

    @property
    def ports(self) -> list[int]:
        """The brokers' own ports, which the proxy forwards to."""
        return [node.port for node in self.broker.nodes]

    def state(self, node: int) -> str:
        """Return running, frozen, killed or starting."""
        if node in self._starting:
            return "starting"
        if self.broker.nodes[node].pid is None:
            return "killed"
        return "frozen" if node in self._frozen else "running"

    def shown(self) -> list[dict[str, Any]]:
        """Return `brokers` of the room's state."""
        return [{"number": node, "state": self.state(node)} for node in range(self.nodes)]

    def all_are(self, state: str) -> bool:
        return all(self.state(node) == state for node in range(self.nodes))

    def kill(self, node: int) -> None:
        self.broker.kill(node)
        self._frozen.discard(node)

    def freeze(self, node: int) -> None:
        self.broker.pause(node)
        self._frozen.add(node)

    def wake(self, node: int) -> None:
        self.broker.resume(node)
        self._frozen.discard(node)

    def start(self, node: int) -> None:
        """Start a broker without waiting until it runs."""
        self._starting.add(node)
        self.trouble = ""
        threading.Thread(target=self._start, args=(node,), name=f"start-broker-{node}", daemon=True).start()

    def close(self) -> None:
        """End all processes and delete the directory."""
        self._stack.close()

    def _start(self, node: int) -> None:
        try:
            self.broker.start(node)
        except (BrokerError, OSError) as error:
            self.trouble = f"broker {node} did not start: {' '.join(str(error).split())[:300]}"
        finally:
            self._starting.discard(node)


OK = "answered without an error"
ANSWER = 5.0  # seconds for a broker to answer a late commit


class RoomNetwork:
    """The network between the clients and the broker, as the proxy lets it pass."""

    def __init__(self, proxy: Proxy):
        self.is_cut = False
        self._proxy = proxy
        self._held: HeldRequest | None = None

    @property
    def hold(self) -> str:
        """Return "", "waiting" for a commit, or "held"."""
        if self._held is None:
            return ""
        return "held" if self._held.struck.is_set() else "waiting"

    @property
    def held_epoch(self) -> int | None:
        if self._held is None or not self._held.struck.is_set() or self._held.request is None:
            return None
        return read_end(self._held.request, self._held.frame).epoch

    def shown(self) -> dict[str, Any]:
        """Return `network` of the room's state."""
        return {"cut": self.is_cut, "hold": self.hold, "held_epoch": self.held_epoch}

    def cut(self) -> None:
        """Pass nothing on, in either direction; the connections stay open."""
        self._proxy.partition()
        self.is_cut = True

    def heal(self) -> None:
        self._proxy.heal()
        self.is_cut = False

    def hold_commit(self) -> None:
        """Hold the next commit and close its client's connection, so that the client sends the commit again."""
        self._held = self._proxy.hold_next_request(Request.END_TXN)

    def deliver(self) -> str:
        """Deliver the held commit to the broker now, and say what it answered. Raises OSError, TimeoutError."""
        held, self._held = self._held, None
        assert held, "the order is possible only while a commit is held"
        answer = held.deliver(ANSWER)
        said = read_ended(answer.request, answer.frame)
        if said == FENCED:
            return "refused as fenced: a younger epoch has the name, and nothing has changed"
        if said == ENDING:
            return "refused: a transaction of the name is being ended just now, and nothing has changed"
        return OK if said == "ok" else f"refused ({said}): nothing has changed"

    def mend(self) -> None:
        """Let everything pass again; a commit that is held is never delivered."""
        self._proxy.disarm()
        self._held = None
        self.heal()
