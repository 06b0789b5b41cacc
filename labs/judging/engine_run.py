"""Runs one engine on one log in one of three trials, and judges it: kills, one outage, or speed without any kill.

Kills. The engine runs as a user's job does (`job_session.py`), with the workload `count` and without a proxy. Each kill
comes when a read_uncommitted reader sees the first result of a randomly chosen window, or a short random delay later.
At that moment the engine may not have stored yet that the result is written. All engines and controls get the same
plan.

Outage. The engine is killed between the rows and their commit, and is started again `outage_seconds` later. The moment
of the kill is found by Kafka's protocol alone, so that it is the same for each engine. A proxy holds each request to
end a transaction. When a read_uncommitted reader sees results that no read_committed reader has, and the chosen window
is among them, the engine is killed: its rows are in Kafka, it has asked for their commit, and the request never
arrives. During an outage that is longer than the transaction timeout, Kafka aborts the transaction.

Speed. The engine drains a backlog, then counts records as they come. A read_committed reader outside of the engine
measures the times. While the backlog is drained, it is the only reader, and it only counts records, so that reading
takes little processor time from the engine. Limitations: one run, on a machine that does other things too. Compare only
runs that alternated on one machine. If an engine duplicates results, the count is reached too early, and its time is
too short; the audit is then not valid.
"""

from __future__ import annotations

import bisect
import contextlib
import re
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from labs.engines.engine import Engine, Running, Work
from labs.equipment.child_process import processor_seconds, resident_bytes
from labs.evidence.auditor.audit import Audit, audit
from labs.evidence.auditor.expected import count_by_window
from labs.evidence.readers.results import CommittedCount, Tail
from labs.faults.proxy import Proxy
from labs.judging.engine_session import (
    ANSWERED,
    WITHOUT_RESULT,
    EngineSession,
    EngineStopped,
    Standstill,
    Step,
    TransactionStory,
)
from labs.judging.job_session import run_job
from labs.judging.judged_job import Job
from labs.judging.strikes import STEADY_SECONDS, Aim, draw, halves, slices
from labs.judging.workloads import Count
from labs.pipeline.log.access_log import Access
from labs.pipeline.records import LATENESS_MS, WINDOW_MS
from labs.runs.chaos import LOOK_FOR_TIMEOUTS, read_all


def plan(workload: Count, kills: int, seed: int) -> list[Aim]:
    """Draw when the kills come. Raises ValueError if the log is too short for so many."""
    return draw(workload.due, workload.inputs, kills, ("kill",), seed, proxied=False)


class EngineJob(Job):
    """An engine with the methods of a user's `Job`, so that `run_job` can run it."""

    def __init__(self, engine: Engine):
        self.name, self.command, self.remarks = engine.name, [engine.name], []
        self._engine = engine

    def start(self, work: Work) -> Running:
        """Start the engine, or start it again."""
        return self._engine.start(work)


OF_LOSS = re.compile(r"\bdata loss\b|\bdata\b.*\blost\b|\blost\b.*\bdata\b")


@dataclass(frozen=True)
class OutageRun:
    """The outcome of a run with one outage."""

    engine: str
    exactly_once: bool
    timeout_seconds: float  # of the transactions
    outage_seconds: float
    steps: tuple[Step, ...]
    said: str | None  # the line of the engine's own log that reports a loss
    audit: Audit

    trial = "outage"

    @property
    def away_seconds(self) -> float:
        """Seconds from the held commit request to the first response after the restart, or else `outage_seconds`."""
        return min((step.seconds for step in self.steps if step.what.startswith(ANSWERED)), default=self.outage_seconds)

    def as_dict(self) -> dict[str, Any]:
        """Return plain values for JSON."""
        return {
            "timeout_seconds": self.timeout_seconds,
            "outage_seconds": self.outage_seconds,
            "away_seconds": round(self.away_seconds, 2),
            "steps": [[round(step.seconds, 2), step.what] for step in sorted(self.steps)],
            "said": self.said,
        }


def run_outage(
    engine: Engine, work: Work, workload: Count, proxy: Proxy, seed: int, outage_seconds: float,
    say: Callable[[str], object] = lambda line: None,
) -> OutageRun:  # fmt: skip
    """Count the log with one outage, and judge. Every client of the broker must come through `proxy`.

    Raises ValueError like `plan`, NotInstalled. If the engine stops by itself, the audit's reason says so.
    """
    [aim], log = plan(workload, 1, seed), workload.log
    results = sum(due < aim.moment for due in workload.due.values()) + 1
    parts = slices(log, 1)
    session = EngineSession(engine, work)
    story, error = TransactionStory(session), None
    try:
        session.start()
        at_once, steady = halves(parts[0])
        session.send(at_once)
        session.wait_for_news()
        session.send(steady, STEADY_SECONDS)
        story.wait_for_a_commit(proxy, results)
        session.kill()
        story.tell("killed")
        story.note_what_the_engine_noted()
        proxy.disarm()
        say(f"killed at a commit, after {len(session.tail.distinct):,} results; away for {outage_seconds:g} s")
        story.wait_for_the_end_of(outage_seconds)
        story.tell("started again")
        proxy.watch(story.overhear)
        session.start()
        send_rest(session, parts[1], log)
    except EngineStopped as stopped:
        error = str(stopped)
    finally:
        session.close()
        proxy.unwatch(story.overhear)
        proxy.disarm()
    return OutageRun(
        engine.name, work.exactly_once, work.transaction_timeout_ms / 1000, outage_seconds, tuple(story.steps),
        _said_of_a_loss(work), judge(session, log, error),
    )  # fmt: skip


def _said_of_a_loss(work: Work) -> str | None:
    """Return the first line of the engine's own log that speaks of lost data, without its time and class."""
    for file in sorted(work.directory.glob("*.log")):
        for line in file.read_text(errors="replace").splitlines():
            if OF_LOSS.search(line):
                return line.partition(" - ")[2].replace(work.name, "job")[:900]
    return None


@dataclass(frozen=True)
class EngineRun:
    """The outcome of a run with kills. `recoveries` are seconds from each kill to the next new committed result."""

    engine: str
    exactly_once: bool
    kills: tuple[float, ...]  # seconds since the engine was first started
    recoveries: tuple[float, ...]
    first_result: float | None  # seconds from the first start to the first committed result
    seconds: float
    audit: Audit

    trial = "kills"

    def as_dict(self) -> dict[str, Any]:
        """Return plain values for JSON."""
        return {
            "recoveries": [round(each, 2) for each in self.recoveries],
            "kills": [round(each, 2) for each in self.kills],
            "first_result": self.first_result and round(self.first_result, 2),
            "seconds": round(self.seconds, 1),
        }


def run_engine(
    engine: Engine,
    work: Work,
    workload: Count,
    kills: int,
    seed: int,
    say: Callable[[str], object] = lambda line: None,
) -> EngineRun:
    """Count the log, kill the engine `kills` times on the way, and judge. Both topics must not exist yet.

    Raises ValueError like `plan`, NotInstalled. If the engine stops, the audit's reason says so.
    """
    run = run_job(EngineJob(engine), work, workload, plan(workload, kills, seed), None, WITHOUT_RESULT, say)
    struck = tuple(strike.seconds for strike in run.strikes)
    return EngineRun(
        engine.name, work.exactly_once, struck, tuple(run.recoveries), run.first_result, run.seconds, run.audit
    )  # fmt: skip


def send_rest(session: EngineSession, rest: Sequence[Access], log: Sequence[Access]) -> None:
    """Send the rest of the log, and wait until the results of the last window are committed. Raises EngineStopped.

    Windows are published in order, so results of earlier windows that are still missing will not come.
    """
    session.send(rest)
    session.close_windows(log)
    expected = count_by_window(log)
    last = max(start for start, _ in expected)
    session.wait_for_these([key for key in expected if key[0] == last])


def judge(session: EngineSession, log: Sequence[Access], error: str | None) -> Audit:
    """Audit the watched results against the expected ones, and against a second reader, which starts now."""
    work = session.work
    patience = work.transaction_timeout_ms / 1000 + LOOK_FOR_TIMEOUTS
    sentinels, watched, came_later = read_all(work.bootstrap_servers, session.watcher, patience, work.sink_topic)
    expected = count_by_window(log)
    return audit(expected, watched, second_reader=came_later, sentinels=sentinels, reader_error=error)


def final_results(log: Sequence[Access], sent: int) -> int:
    """Return how many results the first `sent` accesses make final, even if one partition lags by a whole window."""
    latest = max((time_ms for time_ms, _ in log[:sent]), default=0) - WINDOW_MS
    return sum(start + WINDOW_MS + LATENESS_MS <= latest for start, _ in count_by_window(log))


MEMORY_EVERY = 1.0  # seconds
COUNT_SECONDS = 0.05  # seconds that one read of the count takes at most
MB = 1 << 20


@dataclass(frozen=True)
class SpeedRun:
    """The outcome of a speed run. A latency begins when the record is sent that makes a result final."""

    engine: str
    exactly_once: bool
    backlog: int  # records that were there before the engine started
    first_result: float | None  # seconds from the start of the engine to the first committed result of the backlog
    drained: float | None  # seconds from the start of the engine to the last result of the backlog
    latencies: tuple[float, ...]  # seconds until each later result was visible
    memory_mb: float  # the largest sum of its processes' resident memory; shared pages count in each process
    cores: float | None  # how many its processes kept busy while the records came at a steady pace
    audit: Audit

    trial = "speed"

    def as_dict(self) -> dict[str, Any]:
        """Return plain values for JSON, with the median and the 99th percentile of the latencies in seconds."""
        return {
            "backlog": self.backlog,
            "first_result": self.first_result and round(self.first_result, 2),
            "drained": self.drained and round(self.drained, 2),
            "results_timed": len(self.latencies),
            "latency_p50": percentile(self.latencies, 0.5),
            "latency_p99": percentile(self.latencies, 0.99),
            "memory_mb": round(self.memory_mb),
            "cores": self.cores and round(self.cores, 2),
        }


def percentile(values: Sequence[float], share: float) -> float | None:
    """Return the value that a `share` of the values does not exceed, to three decimals; None without values."""
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
    """Let an engine drain the first `backlog` accesses, then send the others within `seconds`, and judge.

    Raises NotInstalled. If the engine stops by itself, the audit's reason says so.
    """
    results = final_results(log, backlog)  # counted before anything is timed
    session = EngineSession(engine, work, watched=False, partitions=work.partitions)
    usage, error, first, drained, latencies = _Usage(session), None, None, None, []
    try:
        session.send(log[:backlog])
        session.flush()
        try:
            first, drained = _drain(session, results, usage)
        finally:
            session.watch()
        say(f"{backlog:,} records drained")
        session.wait_for(results, committed=True)
        latencies = _follow(session, results, log[backlog:], seconds, usage)
        send_rest(session, (), log)
    except EngineStopped as stopped:
        error = str(stopped)
    finally:
        session.close()
    return SpeedRun(
        engine.name, work.exactly_once, backlog, first, drained, tuple(latencies), usage.memory / MB, usage.cores,
        judge(session, log, error),
    )  # fmt: skip


class _Usage:
    """The memory of the engine's processes (the largest sum, measured once a second), and the cores they keep busy."""

    def __init__(self, session: EngineSession):
        self.memory = 0  # bytes
        self.cores: float | None = None  # in the last `while_busy` block
        self._session, self._measured = session, 0.0

    def look(self) -> None:
        """Measure the memory, unless it was measured a moment ago."""
        if time.monotonic() - self._measured > MEMORY_EVERY:
            self.memory, self._measured = max(self.memory, resident_bytes(self._session.pid)), time.monotonic()

    @contextlib.contextmanager
    def while_busy(self) -> Iterator[None]:
        """Measure with how many cores the processes are busy during the block."""
        began, before = time.monotonic(), processor_seconds(self._session.pid)
        yield
        self.cores = (processor_seconds(self._session.pid) - before) / (time.monotonic() - began)


def _drain(session: EngineSession, results: int, usage: _Usage) -> tuple[float, float]:
    """Start the engine; return the seconds to the first committed result and to all. Raises EngineStopped."""
    count = CommittedCount(session.work.bootstrap_servers, session.work.sink_topic)
    try:
        session.start()
        first, standstill = 0.0, Standstill("nothing")
        while count.records < results:
            session.look()
            usage.look()
            count.read(COUNT_SECONDS)
            if count.records and not first:
                first = session.now
            standstill.look(count.records, f", {count.records:,} of {results:,}")
        return first, session.now
    finally:
        count.close()


def _follow(session: EngineSession, results: int, late: Sequence[Access], seconds: float, usage: _Usage) -> list[float]:
    """Send the rest within `seconds`, and return the latency of each new result. Raises EngineStopped."""
    tail = Tail(session.work.bootstrap_servers, session.work.sink_topic, "read_committed")
    latencies: list[float] = []
    try:
        while len(tail.distinct) < results:  # those of the backlog
            tail.read(0.1)
        sent = len(session.closable)
        session.send(late, seconds)  # only now, since reading the results of a large backlog takes a while
        with usage.while_busy():
            while not session.all_sent:
                tail.distinct.clear()  # so that each read takes as long after a large backlog as after a small one
                session.tick()
                usage.look()
                tail.read(0.01)
                came = time.monotonic()
                for start, _ in tail.distinct:
                    closing = bisect.bisect_left(session.closable, (start + WINDOW_MS,))
                    if sent <= closing < len(session.closable):  # of a window that became final only now
                        latencies.append(came - session.closable[closing][1])
        return latencies
    finally:
        tail.close()
