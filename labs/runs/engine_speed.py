"""How fast one engine is without any kill: a backlog, then results as late as they come, and the memory that it takes.

Guarantee: the results are audited, and times are taken outside, by a reader of committed records that asks all the
time; while the backlog is drained it is the only one, and only counts, so that no reader is what an engine waits for.
Where it stops: one run on one machine that does other things too. Compare runs that took turns, and only with each
other. An engine that doubles is drained too early, and not valid.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from labs.engines.engine import Engine, Work
from labs.equipment.child_process import resident_bytes
from labs.evidence.auditor.audit import Audit
from labs.evidence.readers.tail import CommittedCount, Tail
from labs.pipeline.log.access_log import Access
from labs.pipeline.records import WINDOW_MS
from labs.runs.engine_kills import final_results
from labs.runs.engine_run import judge, send_rest
from labs.runs.engine_session import EngineSession, EngineStopped, Standstill

MEMORY_EVERY = 1.0  # seconds
COUNT_SECONDS = 0.05  # that a look at the count takes at most
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
    results = final_results(log, backlog)  # counted before anything is timed
    session = EngineSession(engine, work, watched=False)
    memory, error, first, drained, latencies = _Memory(session), None, None, None, []
    try:
        session.send(log[:backlog])
        session.flush()
        try:
            first, drained = _drain(session, results, memory)
        finally:
            session.watch()
        say(f"{backlog:,} records drained")
        session.wait_for(results, committed=True)
        latencies = _follow(session, results, log[backlog:], seconds, memory)
        send_rest(session, (), log)
    except EngineStopped as stopped:
        error = str(stopped)
    finally:
        session.close()
    return SpeedRun(
        engine.name, work.exactly_once, backlog, first, drained, tuple(latencies), memory.most / MB,
        judge(session, log, error),
    )  # fmt: skip


class _Memory:
    """The largest sum of memory of the engine's processes, looked at once a second."""

    def __init__(self, session: EngineSession):
        self.most = 0  # bytes
        self._session, self._measured = session, 0.0

    def look(self) -> None:
        if time.monotonic() - self._measured > MEMORY_EVERY:
            self.most, self._measured = max(self.most, resident_bytes(self._session.pid)), time.monotonic()


def _drain(session: EngineSession, results: int, memory: _Memory) -> tuple[float, float]:
    """Start the engine; return the seconds to its first committed result and to so many. Raises EngineStopped."""
    count = CommittedCount(session.work.bootstrap_servers, session.work.sink_topic)
    try:
        session.start()
        first, standstill = 0.0, Standstill("nothing")
        while count.records < results:
            session.look()
            memory.look()
            count.read(COUNT_SECONDS)
            if count.records and not first:
                first = session.now
            standstill.look(count.records, f", {count.records:,} of {results:,}")
        return first, session.now
    finally:
        count.close()


def _follow(
    session: EngineSession, results: int, late: Sequence[Access], seconds: float, memory: _Memory
) -> list[float]:
    """Send the rest within so many seconds, and return the latency of each result meanwhile. Raises EngineStopped."""
    tail = Tail(session.work.bootstrap_servers, session.work.sink_topic, "read_committed")
    latencies: list[float] = []
    try:
        while len(tail.distinct) < results:  # those of the backlog
            tail.read(0.1)
        sent = len(session.closable)
        session.send(late, seconds)  # only now: to read the results of a large backlog takes a while
        while not session.all_sent:
            tail.distinct.clear()  # so that it takes as long after a large backlog as after a small one
            session.tick()
            memory.look()
            tail.read(0.01)
            came = time.monotonic()
            for start, _ in tail.distinct:
                closable = [at for final, at in session.closable[sent:] if final >= start + WINDOW_MS]
                if closable:  # of a window that became final only now
                    latencies.append(came - closable[0])
        return latencies
    finally:
        tail.close()
