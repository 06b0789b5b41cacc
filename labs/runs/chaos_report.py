"""What came of a chaos run, as numbers."""

from __future__ import annotations

import itertools
import statistics
from bisect import bisect_right
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from labs.evidence.auditor.anomaly import Anomaly, Verdict
from labs.evidence.auditor.observed import Key, Result
from labs.evidence.auditor.verdict import Audit
from labs.faults.chaos.journal import Strike
from labs.faults.chaos.plan import KILLS, ChaosPlan

# A result that shows so soon after a kill was committed before it: a restart takes longer.
ON_ITS_WAY = 1.5  # seconds
ON_ITS_WAY_TO_A_SPARE = 0.5  # seconds: a hot spare takes longer too


@dataclass(frozen=True)
class Sample:
    """The state of the run at a moment: seconds since the chaos began, and numbers since then."""

    seconds: float
    sent: int  # records that the traffic sent
    processed: int  # records in batches that are complete
    visible: int  # results that the watching reader has seen

    @property
    def lag(self) -> int:
        """Records that were sent and are in no complete batch yet."""
        return max(self.sent - self.processed, 0)


@dataclass(frozen=True)
class History:
    """What the audit judged: the results expected, what a reader watched all along, and what one saw who came last."""

    expected: Mapping[Key, int] = field(default_factory=dict)
    watched: Sequence[Result] = ()
    at_the_end: Sequence[Result] = ()


@dataclass(frozen=True)
class ChaosReport:
    """The audit of a chaos run, what was done to it, and how it went. `recoveries` are in seconds."""

    plan: ChaosPlan
    audit: Audit
    strikes: Sequence[Strike]
    samples: Sequence[Sample]
    recoveries: Sequence[float]
    records: int
    directory: Path
    history: History = field(default=History(), repr=False)

    @property
    def valid(self) -> bool:
        return self.audit.verdict is Verdict.VALID

    @property
    def faults(self) -> Counter[str]:
        """How many faults of each kind struck."""
        return Counter(strike.kind for strike in self.strikes if strike.injected)

    @property
    def driver_kills(self) -> int:
        return sum(self.faults[kind] for kind in KILLS["driver"])

    def as_dict(self) -> dict[str, Any]:
        """Return what `chaos --json` prints. Times are in seconds."""
        plan = self.plan
        return {
            "verdict": str(self.audit.verdict),
            "seed": plan.seed,
            "minutes": plan.minutes,
            "sink": plan.sink,
            "nodes": plan.nodes,
            "executors": plan.executors,
            "spare": plan.spare,
            "faults": {kind: self.faults[kind] for kind in plan.kinds},
            "driver_kills": self.driver_kills,
            "records": self.records,
            "expected": self.audit.expected,
            "lost": self.audit.lost,
            "duplicated": self.audit.duplicated,
            "conflicting": self.audit.conflicting,
            "hanging": self.audit.counts[Anomaly.HANGING_TRANSACTION],
            "recovery": self.recovery,
            "audit": self.audit.as_dict(),
            "strikes": [strike.as_dict() for strike in self.strikes],
            "evidence": str(self.directory),
        }

    @property
    def recovery(self) -> dict[str, float | int]:
        """From the kill of a driver to the first new committed result: how many were measured, p50 and max."""
        if not self.recoveries:
            return {"kills": 0}
        p50, longest = statistics.median(self.recoveries), max(self.recoveries)
        return {"kills": len(self.recoveries), "p50": round(p50, 2), "max": round(longest, 2)}


def recoveries(kills: Sequence[float], arrivals: Sequence[float], on_its_way: float = ON_ITS_WAY) -> list[float]:
    """Return the seconds from each kill to the first new result; of several kills before one, the last counts.

    Both are moments of one clock, in order. A result within `on_its_way` seconds of a kill is none of its successor's.
    """
    found = []
    for kill, next_kill in itertools.pairwise([*kills, float("inf")]):
        after = bisect_right(arrivals, kill + on_its_way)
        if after < len(arrivals) and arrivals[after] < next_kill:
            found.append(arrivals[after] - kill)
    return found
