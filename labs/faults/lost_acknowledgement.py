"""A fault of the network: the broker stores a batch's records, and its acknowledgement never arrives."""

from __future__ import annotations

from dataclasses import dataclass, field

from labs.faults.kafka_framing import Request
from labs.faults.proxy import Proxy


@dataclass(frozen=True)
class LostAcknowledgement:
    """Lose the next acknowledgement of records once batch `batch` begins to write. Ends nothing: the client retries."""

    batch: int
    proxy: Proxy = field(repr=False)
    point: str = field(default="before_write", init=False)

    name = "lost_acknowledgement"

    def strike(self) -> None:
        self.proxy.drop_next_response(Request.PRODUCE)
