"""A network that fails on command: a TCP proxy in front of one broker.

    with proxied_broker() as (broker, proxy):
        producer = Producer({"bootstrap.servers": proxy.bootstrap_servers})
        lost = proxy.drop_next_response(Request.PRODUCE)
        producer.produce("topic", b"once or twice?")
        producer.flush()
        print(lost.wait().request)

Guarantee: messages that no fault matches pass unchanged and in order, and each fault strikes once. Limitations: plain
text only (no TLS, no SASL). What the broker sends to its own advertised address also passes the proxy, such as each
transaction's markers.

`LostAcknowledgement`: the broker stores a batch's records, and its acknowledgement never arrives.
"""

from __future__ import annotations

import atexit
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from labs.equipment.broker import Broker, nothing
from labs.faults.kafka_messages import Answer, Request
from labs.faults.proxy_server import HeldRequest, NetworkFault, Passage, ProxyServer, Sighting, exchange


class Proxy(ProxyServer):
    """Listens on 127.0.0.1 at once, so that a broker can advertise `port`. Clients wait until `forward_to` is called.

    A fault matches the next request of any client, unless `client_id=` or `transactional_id=` names one, or
    `not_client_id=` excludes one. Each method for a fault returns it: `fault.wait()` waits until it has struck.
    """

    def __init__(self) -> None:
        super().__init__()
        atexit.register(self.close)

    @property
    def bootstrap_servers(self) -> str:
        """The proxy's address as Kafka clients take it."""
        return f"127.0.0.1:{self.port}"

    def drop_next_response(self, kind: Request, *, cut: bool = True, **client: Any) -> NetworkFault:
        """Pass the next request of this kind to the broker, and drop its answer.

        The connection is then cut, so that the client notices at once. With `cut=False` the connection stays open and
        silent, and the client notices only by its own request timeout.
        """
        return self.arm(NetworkFault(kind=kind, direction="response", cut=cut, **client))

    def delay_next_response(self, kind: Request, seconds: float, **client: Any) -> NetworkFault:
        """Delay the next answer of this kind by `seconds`, and all later answers on its connection."""
        return self.arm(NetworkFault(kind=kind, direction="response", cut=False, seconds=seconds, **client))

    def drop_next_request(self, kind: Request, *, cut: bool = True, **client: Any) -> NetworkFault:
        """Drop the next request of this kind before the broker gets it; `cut` as in `drop_next_response`."""
        return self.arm(NetworkFault(kind=kind, direction="request", cut=cut, **client))

    def hold_next_request(self, kind: Request, *, cut_client: bool = True, **client: Any) -> HeldRequest:
        """Hold the next request of this kind until `deliver()` is called on the returned fault.

        The client's connection is cut, so that the client repeats the request over another one. With `cut_client=False`
        the client waits, and gets the answer when `deliver()` is called.
        """
        held = HeldRequest(kind=kind, direction="request", cut=cut_client, sender=self._deliver, **client)
        return self.arm(held)

    def close(self) -> None:
        """Cut all connections and stop listening."""
        atexit.unregister(self.close)
        super().close()

    def _deliver(self, held: HeldRequest, timeout: float, heard: bool) -> Answer:
        request = held.request
        assert request, "held"
        assert self.broker_port, "forwarded"
        answer = Answer(request, exchange(self.broker_port, held.frame, timeout))
        done = f"{'delivered late' if heard else 'delivered again'}: {answer.error or 'no error'}"
        who = (0, request.client_id, request.transactional_id, request.kind)
        passage = Passage(datetime.now(), *who, "request", len(held.frame), done)
        self.tell(Sighting(passage, request, held.frame, answer.frame))
        if heard:
            self.answer(held, answer)
        return answer

    def __enter__(self) -> Proxy:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


@contextmanager
def proxied_broker(meanwhile: Callable[[], object] = nothing, **options: Any) -> Iterator[tuple[Broker, Proxy]]:
    """Start a broker (options as for `Broker`) behind a proxy; `meanwhile` is called while the broker starts."""
    with Proxy() as proxy, closing(Broker(advertised_port=proxy.port, **options)) as broker:
        broker.start(meanwhile=meanwhile)
        proxy.forward_to(broker.nodes[0].port)
        yield broker, proxy


@dataclass(frozen=True)
class LostAcknowledgement:
    """Drop the next acknowledgement of records once batch `batch` begins to write. No crash: the client retries."""

    batch: int
    proxy: Proxy = field(repr=False)
    point: str = field(default="before_rows", init=False)

    name = "lost_acknowledgement"

    def strike(self) -> None:
        self.proxy.drop_next_response(Request.PRODUCE)
