"""One engine counts one log, is killed on the way, started again each time, and judged.

The log is sent in slices, one for each kill and one after them. Half of a slice is sent at once, while the engine is
down: what it finds when it is back. When it has committed something new, the other half comes at a steady pace. So
every engine meets the same part of the log between two kills, however long it takes to start.

A kill strikes a drawn time after a drawn number of results, all of a second half, can be seen by who reads uncommitted:
when something was written that the engine may not have remembered yet. Every engine and its control have the same draw.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from labs.engines.engine import TRANSACTION_TIMEOUT_MS, Engine, Running, Work
from labs.equipment.topics import create_topic
from labs.evidence.auditor.audit import Audit, audit
from labs.evidence.auditor.expected import count_by_window
from labs.evidence.readers.tail import Tail
from labs.evidence.readers.watcher import Watcher
from labs.pipeline.log.access_log import Access
from labs.pipeline.log.replay import close_windows, source_producer
from labs.pipeline.records import source_value
from labs.runs.chaos_audit import LOOK_FOR_TIMEOUTS, read_all
from labs.runs.engine_kills import draw_kills, halves, slices

STEADY_SECONDS = 4.0  # in which the second half of a slice is sent
PATIENCE = 120.0  # seconds without a new result until the run is given up


class EngineStopped(RuntimeError):
    """An engine ended by itself, or did not go on."""


@dataclass(frozen=True)
class EngineRun:
    """What came of a run. `recoveries` are seconds from each kill to the next result that nobody had seen committed."""

    engine: str
    exactly_once: bool
    kills: tuple[float, ...]  # seconds since the engine was first started
    recoveries: tuple[float, ...]
    first_result: float | None  # seconds from the first start to the first committed result
    seconds: float
    audit: Audit


def run_engine(
    engine: Engine,
    work: Work,
    log: Sequence[Access],
    kills: int,
    seed: int,
    say: Callable[[str], object] = lambda line: None,
) -> EngineRun:
    """Count the log, kill the engine `kills` times on the way, and judge. Both topics must not exist yet.

    Raises ValueError as `draw_kills`, NotInstalled. That an engine stops by itself is in the audit's reason.
    """
    plan, parts = draw_kills(log, kills, seed), slices(log, kills)
    for topic in (work.source_topic, work.sink_topic):
        # Quix Streams stamps results with their event time, and the log is old: Kafka would soon delete them.
        create_topic(work.bootstrap_servers, topic, 1, retention_ms="-1")
    expected = count_by_window(log)
    run = _Run(engine, work)
    error = None
    try:
        for number, (kill, part) in enumerate(zip(plan, parts, strict=False), start=1):
            at_once, steady = halves(part)
            run.send(at_once)
            run.wait_for_news()
            run.send(steady, STEADY_SECONDS)
            run.wait_for(kill.results)
            run.idle(kill.delay)
            run.kill()
            say(f"kill {number} of {kills}: after {len(run.tail.distinct):,} of {len(expected):,} results")
        run.send(parts[-1])
        run.close_windows(log)
        run.wait_for(len(expected), committed=True)
    except EngineStopped as stopped:
        error = str(stopped)
    finally:
        run.close()
    sentinels, watched, came_later = read_all(
        work.bootstrap_servers, run.watcher, TRANSACTION_TIMEOUT_MS / 1000 + LOOK_FOR_TIMEOUTS, work.sink_topic
    )
    verdict = audit(expected, watched, second_reader=came_later, sentinels=sentinels, reader_error=error)
    return EngineRun(
        engine.name, work.exactly_once, tuple(run.kills), tuple(run.recoveries), run.first_result,
        run.now, verdict,
    )  # fmt: skip


class _Run:
    """The engine, the source and both readers, while it lasts."""

    def __init__(self, engine: Engine, work: Work):
        self._engine, self._work = engine, work
        self._producer = source_producer(work.bootstrap_servers, **{"linger.ms": 5})
        self.tail = Tail(work.bootstrap_servers, work.sink_topic, "read_uncommitted")
        self.watcher = Watcher(work.bootstrap_servers, work.sink_topic)
        self.kills: list[float] = []
        self.recoveries: list[float] = []
        self.first_result: float | None = None
        self._unsent: list[Access] = []
        self._due = self._pace = 0.0
        self._committed, self._began, self._ticked = 0, time.monotonic(), time.monotonic()
        self._process: Running = engine.start(work)

    @property
    def now(self) -> float:
        """Seconds since the engine was first started."""
        return time.monotonic() - self._began

    def send(self, part: Sequence[Access], seconds: float = 0.0) -> None:
        """Send these accesses within so many seconds, after what is still to be sent, which goes at once."""
        while self._unsent:
            self._send_one()
        self._unsent = list(reversed(part))
        self._pace, self._due = (len(part) / seconds if seconds else 0.0), 0.0
        while not seconds and self._unsent:
            self._send_one()

    def wait_for_news(self) -> None:
        """Wait until a result is committed that was not when the engine was last started."""
        self.wait_for(self._committed + 1, committed=True)

    def wait_for(self, results: int, committed: bool = False) -> None:
        """Wait until so many different results are visible, to who reads uncommitted or committed."""
        seen, since = -1, time.monotonic()
        while (now := len(self.watcher.distinct if committed else self.tail.distinct)) < results:
            if now > seen:
                seen, since = now, time.monotonic()
            if not self._process.running:
                raise EngineStopped(f"{self._engine.name} ended by itself: {self._process.last_line()[:300]}")
            if time.monotonic() - since > PATIENCE:
                raise EngineStopped(f"{self._engine.name} wrote nothing new for {PATIENCE:g} s, {now:,} of {results:,}")
            self._tick()

    def idle(self, seconds: float) -> None:
        """Let things go on for some time."""
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            self._tick()

    def kill(self) -> None:
        """Kill the engine, and start it again at once."""
        self._process.kill()
        self._committed = len(self.watcher.distinct)
        self.kills.append(self.now)
        self._process = self._engine.start(self._work)

    def close_windows(self, log: Sequence[Access]) -> None:
        """Send what is left, then the record that makes the last windows final."""
        while self._unsent:
            self._tick()
        self._producer.flush(60)
        close_windows(max(time_ms for time_ms, _ in log), self._work.bootstrap_servers, self._work.source_topic)

    def close(self) -> None:
        """Kill the engine for good, and read no further uncommitted records."""
        self._process.kill()
        self.tail.close()

    def _tick(self) -> None:
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
        self._producer.produce(self._work.source_topic, source_value(time_ms, ip), ip)
