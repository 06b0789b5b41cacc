"""The network between the clients and the broker: it can be silent, or keep one commit back and deliver it late."""

from __future__ import annotations

from typing import Any

from labs.faults.kafka_contents import ENDING, FENCED, read_end, read_ended
from labs.faults.proxy import HeldRequest, Proxy, Request

OK = "answered without an error"
ANSWER = 5.0  # seconds for a broker to answer a late commit


class RoomNetwork:
    """What the room does with its proxy."""

    def __init__(self, proxy: Proxy):
        self.is_cut = False
        self._proxy = proxy
        self._held: HeldRequest | None = None

    @property
    def hold(self) -> str:
        """Return "", waiting (for a commit) or held."""
        if self._held is None:
            return ""
        return "held" if self._held.struck.is_set() else "waiting"

    @property
    def held_epoch(self) -> int | None:
        if self._held is None or not self._held.struck.is_set() or self._held.request is None:
            return None
        return read_end(self._held.request, self._held.frame).epoch

    def shown(self) -> dict[str, Any]:
        """Return the network of the room's state."""
        return {"cut": self.is_cut, "hold": self.hold, "held_epoch": self.held_epoch}

    def cut(self) -> None:
        """Pass nothing on, in either direction; connections stay."""
        self._proxy.partition()
        self.is_cut = True

    def heal(self) -> None:
        self._proxy.heal()
        self.is_cut = False

    def hold_commit(self) -> None:
        """Keep the next commit back, and cut its client off, which then repeats it."""
        self._held = self._proxy.hold_next_request(Request.END_TXN)

    def deliver(self) -> str:
        """Let the broker have the commit now, and say what it answered. Raises OSError, TimeoutError."""
        held, self._held = self._held, None
        assert held, "the order is possible only then"
        answer = held.deliver(ANSWER)
        said = read_ended(answer.request, answer.frame)
        if said == FENCED:
            return "refused as fenced: a younger epoch has the name, and nothing has changed"
        if said == ENDING:
            return "refused: a transaction of the name is being ended just now, and nothing has changed"
        return OK if said == "ok" else f"refused ({said}): nothing has changed"

    def mend(self) -> None:
        """End whatever is wrong; a commit that is held is never delivered."""
        self._proxy.disarm()
        self._held = None
        self.heal()
