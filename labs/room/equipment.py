"""What stands in the room: Kafka behind a proxy, and one directory for all that is written.

Guarantee: nothing of it outlives `close`, nor this process, however it ends: each process is on a leash, and so is the
directory. Where it stops: of several brokers only the first one's clients come through the proxy.
"""

from __future__ import annotations

import threading
from contextlib import ExitStack
from typing import Any

from labs.equipment.broker import BrokerError
from labs.equipment.leash import directory_on_a_leash
from labs.faults.proxy import proxied_broker


class RoomEquipment:
    """Starts `nodes` brokers and waits for them. Raises BrokerError, OSError."""

    def __init__(self, nodes: int):
        self.trouble = ""  # why a broker did not start
        self._stack = ExitStack()
        self._frozen: set[int] = set()
        self._starting: set[int] = set()
        try:
            self.directory = self._stack.enter_context(directory_on_a_leash("labs-room-"))
            broker, proxy = self._stack.enter_context(proxied_broker(nodes=nodes, directory=self.directory / "kafka"))
            self._stack.callback(broker.kill)  # before it is stopped: nobody needs its data any more
            self.broker, self.proxy = broker, proxy
        except BaseException:
            self._stack.close()
            raise

    @property
    def nodes(self) -> int:
        return len(self.broker.nodes)

    @property
    def ports(self) -> list[int]:
        """The brokers' own ports, behind the proxy."""
        return [node.port for node in self.broker.nodes]

    def state(self, node: int) -> str:
        """Return running, frozen, killed or starting."""
        if node in self._starting:
            return "starting"
        if self.broker.nodes[node].pid is None:
            return "killed"
        return "frozen" if node in self._frozen else "running"

    def shown(self) -> list[dict[str, Any]]:
        """Return the brokers of the room's state."""
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
        """Begin to start a broker, and do not wait for it."""
        self._starting.add(node)
        self.trouble = ""
        threading.Thread(target=self._start, args=(node,), name=f"start-broker-{node}", daemon=True).start()

    def close(self) -> None:
        """End all of it, and delete the directory."""
        self._stack.close()

    def _start(self, node: int) -> None:
        try:
            self.broker.start(node)
        except (BrokerError, OSError) as error:
            self.trouble = f"broker {node} did not start: {' '.join(str(error).split())[:300]}"
        finally:
            self._starting.discard(node)
