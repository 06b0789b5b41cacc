"""An outage longer than the transactions' timeout, which strikes between the rows and their commit.

The rule knows no engine, only Kafka's protocol. A proxy holds back every request to end a transaction. When results
can be seen by who reads uncommitted that no committed reader has, and the drawn window is among them, the engine is
killed: its rows are in Kafka, it has asked for their commit, and the request never arrives. Nobody comes back until
the outage is over.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from labs.engines.engine import Engine, Work
from labs.evidence.auditor.audit import Audit
from labs.faults.proxy import Proxy
from labs.pipeline.log.access_log import Access
from labs.runs.engine_kills import draw_kills, halves, slices
from labs.runs.engine_run import STEADY_SECONDS, judge, send_rest
from labs.runs.engine_session import EngineSession, EngineStopped
from labs.runs.transaction_story import ANSWERED, Step, TransactionStory

OF_LOSS = re.compile(r"\bdata loss\b|\bdata\b.*\blost\b|\blost\b.*\bdata\b")


@dataclass(frozen=True)
class OutageRun:
    """What came of a run with one outage."""

    engine: str
    exactly_once: bool
    timeout_seconds: float  # of the transactions
    outage_seconds: float
    steps: tuple[Step, ...]
    said: str | None  # what the engine's own log says of a loss
    audit: Audit

    trial = "outage"

    @property
    def away_seconds(self) -> float:
        """Seconds from the request to commit until the engine, started again, was answered one: outage and restart."""
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
    engine: Engine, work: Work, log: Sequence[Access], proxy: Proxy, seed: int, outage_seconds: float,
    say: Callable[[str], object] = lambda line: None,
) -> OutageRun:  # fmt: skip
    """Count the log with one outage, and judge. Every client of the broker must come through `proxy`.

    Raises ValueError as `draw_kills`, NotInstalled. That an engine stops by itself is in the audit's reason.
    """
    [kill], parts = draw_kills(log, 1, seed), slices(log, 1)
    session = EngineSession(engine, work)
    story, error = TransactionStory(session), None
    try:
        session.start()
        at_once, steady = halves(parts[0])
        session.send(at_once)
        session.wait_for_news()
        session.send(steady, STEADY_SECONDS)
        story.wait_for_a_commit(proxy, kill.results)
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
