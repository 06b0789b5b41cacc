"""How fast one engine is without any kill: a backlog, then results as late as they come, and the memory that it takes.

Guarantee: the results are audited, and times are taken outside, by a reader of committed records that asks all the
time. Where it stops: one run on one machine that does other things too. Compare runs that took turns, and only with
each other.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from labs.engines.engine import Engine, Work
from labs.equipment.child_process import resident_bytes
from labs.evidence.auditor.audit import Audit
from labs.evidence.readers.tail import Tail
from labs.pipeline.log.access_log import Access
from labs.pipeline.records import WINDOW_MS
from labs.runs.engine_kills import final_results
from labs.runs.engine_run import finish, judge
from labs.runs.engine_session import EngineSession, EngineStopped, Standstill

MEMORY_EVERY = 1.0  # seconds
MB = 1 << 20


@dataclass(frozen=True)
class SpeedRun:
    """What came of a run: `latencies` are seconds from the record that made a result final to its being visible."""

    engine: str
    exactly_once: bool
    backlog: int  # records that were there before the engine started
    first_result: float | None  # seconds from the start of the engine to the first committed result of the backlog
    drained: float | None  # seconds from the start of the engine to the last
    latencies: tuple[float, ...]
    memory_mb: float  # the largest sum of what its processes had in memory at once; shared pages count in each
    audit: Audit

    trial = "speed"

    def as_dict(self) -> dict[str, Any]:
        """Return plain values for JSON; latencies as their median and their 99th percentile."""
        return {
            "backlog": self.backlog,
            "first_result": self.first_result and round(self.first_result, 2),
            "drained": self.drained and round(self.drained, 2),
            "results_timed": len(self.latencies),
            "latency_p50": percentile(self.latencies, 0.5),
            "latency_p99": percentile(self.latencies, 0.99),
            "memory_mb": round(self.memory_mb),
        }


def percentile(values: Sequence[float], share: float) -> float | None:
    """Return the value that so large a share of the values does not exceed, to the millisecond; None of none."""
    ordered = sorted(values)
    return round(ordered[min(len(ordered) - 1, int(share * len(ordered)))], 3) if ordered else None


def run_speed(
    engine: Engine,
    work: Work,
    log: Sequence[Access],
    backlog: int,
    seconds: float,
    say: Callable[[str], object] = lambda line: None,
) -> SpeedRun:
    """Let an engine drain the first `backlog` accesses, then send it the others within so many seconds, and judge.

    Raises NotInstalled. That an engine stops by itself is in the audit's reason.
    """
    session = EngineSession(engine, work)
    clock, error, first, drained = _Clock(session), None, None, None
    try:
        session.send(log[:backlog])
        session.flush()
        session.start()
        clock.wait_for(1)
        first = session.now
        clock.wait_for(final_results(log, backlog))
        drained = session.now
        say(f"{backlog:,} records drained")
        session.send(log[backlog:], seconds)
        clock.follow()
        finish(session, (), log)
    except EngineStopped as stopped:
        error = str(stopped)
    finally:
        session.close()
        clock.close()
    return SpeedRun(
        engine.name, work.exactly_once, backlog, first, drained, tuple(clock.latencies), clock.memory / MB,
        judge(session, log, error),
    )  # fmt: skip


class _Clock:
    """A reader of committed records of its own, which notes when each result came, and the memory taken."""

    def __init__(self, session: EngineSession):
        self.latencies: list[float] = []
        self.memory = 0  # bytes
        self._session, self._measured = session, 0.0
        self._tail = Tail(session.work.bootstrap_servers, session.work.sink_topic, "read_committed")

    def wait_for(self, results: int) -> None:
        """Wait until so many different results are committed. Raises EngineStopped."""
        standstill = Standstill("nothing")
        while (now := len(self._tail.distinct)) < results:
            standstill.look(now, f", {now:,} of {results:,}")
            self._look()

    def follow(self) -> None:
        """Time each result from now on, until all is sent that is to be sent, and until its windows are there."""
        known, sent = set(self._tail.distinct), len(self._session.closable)
        while not self._session.all_sent:
            self._look()
            came = time.monotonic()
            for key in self._tail.distinct - known:
                closable = [at for final, at in self._session.closable[sent:] if final >= key[0] + WINDOW_MS]
                if closable:  # of a window that became final only now
                    self.latencies.append(came - closable[0])
                known.add(key)

    def close(self) -> None:
        self._tail.close()

    def _look(self) -> None:
        self._session.tick()
        self._tail.read(0.01)
        if time.monotonic() - self._measured > MEMORY_EVERY:
            self.memory, self._measured = max(self.memory, resident_bytes(self._session.pid)), time.monotonic()
