"""What replays share: a Kafka behind a proxy, how long one waits for it, and the refusal of what cannot be."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from labs.equipment.broker import Broker
from labs.faults.proxy import Proxy, proxied_broker

LATE = 5_000  # ms after which Kafka aborts an open transaction, in a schedule in which it is to
NEVER_LATE = 300_000
PATIENCE = 60.0  # seconds for what has to come


class CannotPlay(RuntimeError):
    """The schedule cannot be carried out; the message names the step, and says what happens instead."""


@dataclass
class ReplayBench:
    """A Kafka whose clients all come through a proxy. `direct` is its address past the proxy, for who only looks."""

    broker: Broker
    proxy: Proxy

    @property
    def direct(self) -> str:
        return self.broker.bootstrap_servers


@contextmanager
def replay_bench() -> Iterator[ReplayBench]:
    """Start one, for as many replays as there are."""
    with proxied_broker() as (broker, proxy):
        yield ReplayBench(broker, proxy)
