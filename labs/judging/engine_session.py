"""Runs an engine between two topics: a producer for its source, two readers of its results.

`TransactionStory` records the steps of one of its transactions. Guarantee: while a session waits, it also sends the
records that are due, and reads. It does not query the engine: it sees the steps of a transaction in the proxy, with the
two readers, and in the modification time of a file. Limitations: it judges nothing. The time of a step is the time at
which it was seen, some hundredths of a second after it happened, or more on a busy machine.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Sequence
from typing import Any, NamedTuple

from labs.engines.engine import Engine, Running, Work
from labs.equipment.topics import create_topic
from labs.evidence.auditor.observed import Key
from labs.evidence.readers.results import Tail, Watcher
from labs.evidence.readers.transactions import read_ends
from labs.faults.kafka_messages import Answer, Request, read_end
from labs.faults.proxy import Proxy, Sighting
from labs.faults.proxy_server import HeldRequest
from labs.pipeline.log.access_log import Access
from labs.pipeline.log.replay import close_windows, source_producer
from labs.pipeline.records import LATENESS_MS, WINDOW_MS, source_value

WITHOUT_RESULT = 240.0  # seconds without a new result, after which the run fails
SOURCE_CLIENT = "labs-source"  # the client id of the producer of the source
OF_SOURCE: dict[str, str | int] = {"linger.ms": 5, "client.id": SOURCE_CLIENT}  # its settings


class EngineStopped(RuntimeError):
    """An engine ended by itself, or produced no new results for too long."""


class Standstill:
    """Measures the time since the last new result. A run fails after `patience` seconds without one."""

    def __init__(self, what: str, patience: float = WITHOUT_RESULT):
        self._what, self._patience = what, patience
        self._seen, self._since = -1, time.monotonic()

    def look(self, results: int, so_far: str) -> None:
        """Note the number of results. If it has not grown for `patience` seconds, raise EngineStopped with `so_far`."""
        if results > self._seen:
            self._seen, self._since = results, time.monotonic()
        if time.monotonic() - self._since > self._patience:
            raise EngineStopped(f"{self._what} new for {self._patience:g} s{so_far}")


class EngineSession:
    """Creates both topics, which must not exist yet, and reads the results; `start` starts the engine.

    If not `watched`, it reads nothing before `watch()`: two Python readers of many results would keep a core busy
    that the engine needs.
    """

    tail: Tail
    watcher: Watcher
    patience = WITHOUT_RESULT

    def __init__(self, engine: Engine, work: Work, watched: bool = True, partitions: int = 1):
        for topic in (work.source_topic, work.sink_topic):
            # Quix Streams stamps results with their event time, and the log is old: Kafka would soon delete them.
            # A Kafka of the user's own may also have other defaults.
            create_topic(
                work.bootstrap_servers,
                topic,
                partitions,
                retention_ms="-1",
                retention_bytes="-1",
                cleanup_policy="delete",
            )
        self.engine, self.work = engine, work
        self._producer = source_producer(work.bootstrap_servers, **OF_SOURCE)
        self.kills: list[float] = []  # seconds since the engine was first started
        self.recoveries: list[float] = []  # seconds from a kill to the next new committed result
        self.first_result: float | None = None  # seconds to the first committed result
        # (event time, moment): windows that end at this time or before are final since this moment of time.monotonic()
        self.closable: list[tuple[int, float]] = []
        self.process: Running | None = None
        self._unsent: list[Any] = []
        self._due = self._pace = 0.0
        self._committed, self._began, self._ticked = 0, time.monotonic(), time.monotonic()
        self._watched = False
        if watched:
            self.watch()

    def watch(self) -> None:
        """Read the results from the beginning of the topic on."""
        self.tail = Tail(self.work.bootstrap_servers, self.work.sink_topic, "read_uncommitted")
        self.watcher = Watcher(self.work.bootstrap_servers, self.work.sink_topic)
        self._watched = True

    @property
    def now(self) -> float:
        """Seconds since the engine was first started."""
        return time.monotonic() - self._began

    @property
    def pid(self) -> int:
        """The engine's process id, which is also that of its process group."""
        assert self.process, "started"
        return self.process.group

    @property
    def all_sent(self) -> bool:
        return not self._unsent

    def send(self, part: Sequence[Any], seconds: float = 0.0) -> None:
        """Send these records within `seconds`. Records that an earlier call left unsent are sent first, at once."""
        while self._unsent:
            self._send_one()
        self._unsent = list(reversed(part))
        self._pace, self._due, self._ticked = (len(part) / seconds if seconds else 0.0), 0.0, time.monotonic()
        while not seconds and self._unsent:
            self._send_one()

    def wait_for_news(self) -> None:
        """Wait until a result is committed that was not committed at the last kill."""
        self.wait_for(self._committed + 1, committed=True)

    def wait_for(self, results: int, committed: bool = False) -> None:
        """Wait until a reader sees so many different results: read_committed if `committed`, else read_uncommitted."""
        standstill = Standstill(f"{self.engine.name} wrote nothing", self.patience)
        while (now := len(self.watcher.distinct if committed else self.tail.distinct)) < results:
            standstill.look(now, f", {now:,} of {results:,}")
            self.tick()

    def wait_for_these(self, results: Collection[Key]) -> None:
        """Wait until all of these are committed."""
        standstill = Standstill(f"{self.engine.name} wrote nothing", self.patience)
        while missing := len([each for each in results if each not in self.watcher.distinct]):
            standstill.look(len(self.watcher.distinct), f"; {missing:,} are missing")
            self.tick()

    def idle(self, seconds: float) -> None:
        """Go on sending and reading for some seconds, whether the engine runs or not."""
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            self._go_on()

    def kill(self) -> None:
        """Kill the engine."""
        assert self.process, "started"
        self.process.kill()
        self._catch_up()
        self._committed = len(self.watcher.distinct)
        self.kills.append(self.now)
        self.process.close()

    def _catch_up(self) -> None:
        """Read what was committed before a kill, so that only later results count as new.

        Nothing to do here, since the watcher reads in a thread of its own.
        """

    def start(self) -> None:
        """Start the engine, or start it again after a kill. Raises NotInstalled."""
        if self.process is None:
            self._began = time.monotonic()
        self.process = self.engine.start(self.work)

    def flush(self) -> None:
        """Wait until Kafka has acknowledged what was sent."""
        self._producer.flush(120)

    def close_windows(self, log: Sequence[Access]) -> None:
        """Send the remaining accesses, then the record that makes the last windows final."""
        while self._unsent:
            self.tick()
        self.flush()
        close_windows(max(time_ms for time_ms, _ in log), self.work.bootstrap_servers, self.work.source_topic)

    def close(self) -> None:
        """Stop the engine, and stop reading uncommitted records."""
        if self.process:
            self.process.stop()
            self.process.close()
        if self._watched:
            self.tail.close()

    def tick(self) -> None:
        """Send the accesses that are due, and read new results. Raises EngineStopped if the engine has ended."""
        self.look()
        self._go_on()

    def look(self) -> None:
        """Check that the engine runs. Raises EngineStopped if it has ended by itself."""
        assert self.process, "started"
        if not self.process.running:
            raise EngineStopped(f"{self.engine.name} ended by itself: {self.process.last_line()[:300]}")

    def _go_on(self) -> None:
        last, self._ticked = self._ticked, time.monotonic()
        self._due += (self._ticked - last) * self._pace
        while self._due >= 1 and self._unsent:
            self._send_one()
            self._due -= 1
        self._producer.poll(0)
        self.tail.read(0.01)
        seen = len(self.watcher.distinct)
        if seen and self.first_result is None:
            self.first_result = self.now
        if len(self.recoveries) < len(self.kills) and seen > self._committed:
            self.recoveries.append(self.now - self.kills[-1])

    def _send_one(self) -> None:
        time_ms, ip = self._unsent.pop()
        try:
            self._producer.produce(self.work.source_topic, source_value(time_ms, ip), ip)
        except BufferError:
            self.flush()
            self._producer.produce(self.work.source_topic, source_value(time_ms, ip), ip)
        final = (time_ms - LATENESS_MS) // WINDOW_MS * WINDOW_MS
        if not self.closable or final > self.closable[-1][0]:
            self.closable.append((final, time.monotonic()))


ANSWERED = "an end is answered"
TO_SEE = 0.25  # seconds until both readers have read to the end of the topic


class Step(NamedTuple):
    """One observation of the transaction that was struck; seconds count from the request to commit it."""

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
        """Wait for the commit of new results, and hold it. Raises EngineStopped.

        Each request to end a transaction is held. If it is a commit, a read_uncommitted reader sees at least `results`
        results, and some of them are new in this transaction, it stays held. Otherwise it is delivered.
        """
        session, rows_since, began = self._session, 0.0, time.monotonic()
        held, tail, decided = self._hold(proxy), session.tail.distinct, len(session.watcher.distinct)
        while time.monotonic() - began < WITHOUT_RESULT:
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
            rows_since, decided = 0.0, len(tail)  # later results are those of the next transaction
            let_go.deliver()
        raise EngineStopped(f"{session.engine.name} committed no results in a transaction within {WITHOUT_RESULT:g} s")

    def note_what_the_engine_noted(self) -> None:
        """Record when the engine last wrote a file in which it stores its progress (`Engine.notes`)."""
        if notes := self._session.engine.notes:
            written = [file.stat().st_mtime for file in self._session.work.directory.glob(notes)]
            if written:
                self.tell("noted as done", max(written) - time.time() + time.monotonic())

    def wait_for_the_end_of(self, outage_seconds: float) -> None:
        """Wait until the outage is over, and record when Kafka has aborted the open transaction."""
        until, ended = time.monotonic() + outage_seconds, False
        while time.monotonic() < until:
            self._session.idle(0.5)
            [end] = read_ends(self._session.work.bootstrap_servers, self._session.work.sink_topic)
            if not ended and end.last_stable_offset == end.log_end:
                self.tell("aborted by Kafka")
                ended = True

    def overhear(self, sighting: Sighting) -> None:
        """Record the first three responses that a restarted engine gets to its requests to end a transaction."""
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
