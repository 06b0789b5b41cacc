"""An engine at work on two topics: what is sent to it, and two readers of its results.

Guarantee: whoever waits here also sends what is due, and reads. Where it stops: it judges nothing, and knows no
engine.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Sequence

from labs.engines.engine import Engine, Running, Work
from labs.equipment.topics import create_topic
from labs.evidence.auditor.observed import Key
from labs.evidence.readers.tail import Tail
from labs.evidence.readers.watcher import Watcher
from labs.pipeline.log.access_log import Access
from labs.pipeline.log.replay import close_windows, source_producer
from labs.pipeline.records import LATENESS_MS, WINDOW_MS, source_value

PATIENCE = 240.0  # seconds without a new result until the run is given up


class EngineStopped(RuntimeError):
    """An engine ended by itself, or did not go on."""


class Standstill:
    """How long nothing new has come, after PATIENCE seconds of which a run is given up."""

    def __init__(self, what: str):
        self._what = what
        self._seen, self._since = -1, time.monotonic()

    def look(self, results: int, so_far: str) -> None:
        """Note how many results there are now. Raises EngineStopped, with `so_far`, if none came for too long."""
        if results > self._seen:
            self._seen, self._since = results, time.monotonic()
        if time.monotonic() - self._since > PATIENCE:
            raise EngineStopped(f"{self._what} new for {PATIENCE:g} s{so_far}")


class EngineSession:
    """Make both topics, which must not exist yet, and read the results; the engine is started by `start`.

    Not `watched`, nothing is read until `watch()`: two readers in Python take a core when many results come at once.
    """

    tail: Tail
    watcher: Watcher

    def __init__(self, engine: Engine, work: Work, watched: bool = True):
        for topic in (work.source_topic, work.sink_topic):
            # Quix Streams stamps results with their event time, and the log is old: Kafka would soon delete them.
            create_topic(work.bootstrap_servers, topic, 1, retention_ms="-1")
        self.engine, self.work = engine, work
        self._producer = source_producer(work.bootstrap_servers, **{"linger.ms": 5})
        self.kills: list[float] = []  # seconds since the engine was first started
        self.recoveries: list[float] = []  # seconds from a kill to the next result that nobody had seen committed
        self.first_result: float | None = None  # seconds to the first committed result
        self.closable: list[tuple[int, float]] = []  # (all windows that end until then are final, time.monotonic())
        self.process: Running | None = None
        self._unsent: list[Access] = []
        self._due = self._pace = 0.0
        self._committed, self._began, self._ticked = 0, time.monotonic(), time.monotonic()
        self._watched = False
        if watched:
            self.watch()

    def watch(self) -> None:
        """Read the results from now on, those that are there already first."""
        self.tail = Tail(self.work.bootstrap_servers, self.work.sink_topic, "read_uncommitted")
        self.watcher = Watcher(self.work.bootstrap_servers, self.work.sink_topic)
        self._watched = True

    @property
    def now(self) -> float:
        """Seconds since the engine was first started."""
        return time.monotonic() - self._began

    @property
    def pid(self) -> int:
        """The engine's process id, which is its process group's too."""
        assert self.process, "started"
        return self.process.pid

    @property
    def all_sent(self) -> bool:
        return not self._unsent

    def send(self, part: Sequence[Access], seconds: float = 0.0) -> None:
        """Send these accesses within so many seconds, after what is still to be sent, which goes at once."""
        while self._unsent:
            self._send_one()
        self._unsent = list(reversed(part))
        self._pace, self._due, self._ticked = (len(part) / seconds if seconds else 0.0), 0.0, time.monotonic()
        while not seconds and self._unsent:
            self._send_one()

    def wait_for_news(self) -> None:
        """Wait until a result is committed that was not when the engine was last started."""
        self.wait_for(self._committed + 1, committed=True)

    def wait_for(self, results: int, committed: bool = False) -> None:
        """Wait until so many different results are visible, to who reads uncommitted or committed."""
        standstill = Standstill(f"{self.engine.name} wrote nothing")
        while (now := len(self.watcher.distinct if committed else self.tail.distinct)) < results:
            standstill.look(now, f", {now:,} of {results:,}")
            self.tick()

    def wait_for_these(self, results: Collection[Key]) -> None:
        """Wait until all of these are committed."""
        standstill = Standstill(f"{self.engine.name} wrote nothing")
        while missing := len([each for each in results if each not in self.watcher.distinct]):
            standstill.look(len(self.watcher.distinct), f"; {missing:,} are missing")
            self.tick()

    def idle(self, seconds: float) -> None:
        """Let things go on for some time, whether the engine runs or not."""
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            self._go_on()

    def kill(self) -> None:
        """Kill the engine."""
        assert self.process, "started"
        self.process.kill()
        self._committed = len(self.watcher.distinct)
        self.kills.append(self.now)
        self.process.close()

    def start(self) -> None:
        """Start the engine, or start it again after a kill. Raises NotInstalled."""
        if self.process is None:
            self._began = time.monotonic()
        self.process = self.engine.start(self.work)

    def flush(self) -> None:
        """Wait until what was sent is in Kafka."""
        self._producer.flush(120)

    def close_windows(self, log: Sequence[Access]) -> None:
        """Send what is left, then the record that makes the last windows final."""
        while self._unsent:
            self.tick()
        self.flush()
        close_windows(max(time_ms for time_ms, _ in log), self.work.bootstrap_servers, self.work.source_topic)

    def close(self) -> None:
        """Stop the engine for good, and read no further uncommitted records."""
        if self.process:
            self.process.stop()
            self.process.close()
        if self._watched:
            self.tail.close()

    def tick(self) -> None:
        """Send what is due, and read what has come. Raises EngineStopped if the engine has ended by itself."""
        self.look()
        self._go_on()

    def look(self) -> None:
        """Look whether the engine runs. Raises EngineStopped if it has ended by itself."""
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
