"""What can be seen of one transaction from outside: by the proxy, by two readers, and by the age of a file.

Guarantee: nothing is asked of the engine. Where it stops: a step is told when it is seen, which is some hundredths of a
second after it happened, and more on a machine that is busy.
"""

from __future__ import annotations

import time
from typing import NamedTuple

from labs.evidence.readers.transactions import read_ends
from labs.faults.kafka_contents import read_end
from labs.faults.kafka_framing import Answer, Request
from labs.faults.network_fault import HeldRequest
from labs.faults.proxy import Proxy, Sighting
from labs.runs.engine_session import PATIENCE, EngineSession, EngineStopped

ANSWERED = "an end is answered"
TO_SEE = 0.25  # seconds in which both readers have what is there


class Step(NamedTuple):
    """What was seen of the transaction that was struck; seconds count from the request to commit it."""

    seconds: float
    what: str


class TransactionStory:
    """Collects the steps of one transaction of a session's engine."""

    def __init__(self, session: EngineSession):
        self.steps: list[Step] = []
        self._session = session
        self._asked = time.monotonic()
        self._answers = 0

    def tell(self, what: str, at: float | None = None) -> None:
        self.steps.append(Step((at or time.monotonic()) - self._asked, what))

    def wait_for_a_commit(self, proxy: Proxy, results: int) -> None:
        """Hold requests to end a transaction until one is about results of which so many can be seen by then."""
        session, rows_since, began = self._session, 0.0, time.monotonic()
        held, tail, decided = self._hold(proxy), session.tail.distinct, len(session.watcher.distinct)
        while time.monotonic() - began < PATIENCE:
            session.tick()
            if not rows_since and len(tail) > decided:
                rows_since = time.monotonic()
            if not held.struck.is_set():
                continue
            asked = time.monotonic()
            session.idle(TO_SEE)
            if len(tail) >= results and len(tail) > decided and _is_commit(held):
                self._asked = asked
                self.tell("rows in Kafka", min(rows_since or asked, asked))
                self.tell("commit asked for", asked)
                return
            let_go, held = held, self._hold(proxy)
            rows_since, decided = 0.0, len(tail)  # what is seen next is the next transaction's
            let_go.deliver()
        raise EngineStopped(f"{session.engine.name} committed no results in a transaction within {PATIENCE:g} s")

    def note_what_the_engine_noted(self) -> None:
        """Tell when the newest of the files was written by which the engine remembers what is done."""
        if notes := self._session.engine.notes:
            written = [file.stat().st_mtime for file in self._session.work.directory.glob(notes)]
            if written:
                self.tell("noted as done", max(written) - time.time() + time.monotonic())

    def wait_for_the_end_of(self, outage_seconds: float) -> None:
        """Stay away for so long, and tell when Kafka has ended what was open."""
        until, ended = time.monotonic() + outage_seconds, False
        while time.monotonic() < until:
            self._session.idle(0.5)
            [end] = read_ends(self._session.work.bootstrap_servers, self._session.work.sink_topic)
            if not ended and end.last_stable_offset == end.log_end:
                self.tell("aborted by Kafka")
                ended = True

    def overhear(self, sighting: Sighting) -> None:
        """Tell the first answers that a restarted engine gets to its requests to end a transaction."""
        passage = sighting.passage
        if passage.kind is Request.END_TXN and passage.direction == "response" and self._answers < 3:
            error = Answer(sighting.request, sighting.frame).error
            self._answers += 1
            self.tell(f"{ANSWERED}: {error or 'done'}")

    def _hold(self, proxy: Proxy) -> HeldRequest:
        return proxy.hold_next_request(Request.END_TXN, cut_client=False)


def _is_commit(held: HeldRequest) -> bool:
    assert held.request, "struck"
    return read_end(held.request, held.frame).committed
