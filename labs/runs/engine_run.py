"""One engine counts one log, is killed on the way, started again each time, and judged.

The log is sent in slices, one for each kill and one after them. Half of a slice is sent at once, while the engine is
down: what it finds when it is back. When it has committed something new, the other half comes at a steady pace. So
every engine meets the same part of the log between two kills, however long it takes to start.

A kill strikes when the first result of a drawn window, all of whose records are in a second half, can be seen by who
reads uncommitted, or a drawn moment later: something was written that the engine may not have remembered yet. Every
engine and its control have the same draw.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from labs.engines.engine import Engine, Work
from labs.evidence.auditor.audit import Audit, audit
from labs.evidence.auditor.expected import count_by_window
from labs.pipeline.log.access_log import Access
from labs.runs.chaos_audit import LOOK_FOR_TIMEOUTS, read_all
from labs.runs.engine_kills import draw_kills, halves, slices
from labs.runs.engine_session import EngineSession, EngineStopped

STEADY_SECONDS = 4.0  # in which the second half of a slice is sent


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
    log: Sequence[Access],
    kills: int,
    seed: int,
    say: Callable[[str], object] = lambda line: None,
) -> EngineRun:
    """Count the log, kill the engine `kills` times on the way, and judge. Both topics must not exist yet.

    Raises ValueError as `draw_kills`, NotInstalled. That an engine stops by itself is in the audit's reason.
    """
    plan, parts = draw_kills(log, kills, seed), slices(log, kills)
    session = EngineSession(engine, work)
    error = None
    try:
        session.start()
        for number, (kill, part) in enumerate(zip(plan, parts, strict=False), start=1):
            at_once, steady = halves(part)
            session.send(at_once)
            session.wait_for_news()
            session.send(steady, STEADY_SECONDS)
            session.wait_for(kill.results)
            session.idle(kill.delay)
            session.kill()
            say(f"kill {number} of {kills}: after {len(session.tail.distinct):,} results")
            session.start()
        send_rest(session, parts[-1], log)
    except EngineStopped as stopped:
        error = str(stopped)
    finally:
        session.close()
    return EngineRun(
        engine.name, work.exactly_once, tuple(session.kills), tuple(session.recoveries), session.first_result,
        session.now, judge(session, log, error),
    )  # fmt: skip


def send_rest(session: EngineSession, rest: Sequence[Access], log: Sequence[Access]) -> None:
    """Send the rest of the log, and wait until the results of the last window are committed. Raises EngineStopped.

    Windows come in their order, so what is missing then is not on its way.
    """
    session.send(rest)
    session.close_windows(log)
    expected = count_by_window(log)
    last = max(start for start, _ in expected)
    session.wait_for_these([key for key in expected if key[0] == last])


def judge(session: EngineSession, log: Sequence[Access], error: str | None) -> Audit:
    """Audit what was seen all along against what was to be seen, and against a reader who comes only now."""
    work = session.work
    patience = work.transaction_timeout_ms / 1000 + LOOK_FOR_TIMEOUTS
    sentinels, watched, came_later = read_all(work.bootstrap_servers, session.watcher, patience, work.sink_topic)
    expected = count_by_window(log)
    return audit(expected, watched, second_reader=came_later, sentinels=sentinels, reader_error=error)
