"""Several engines count the same log on the same broker, with the same kills, before the same judge.

The runs take turns: every engine exactly once, then every control. What an engine promises is in its settings' module;
here is only what was seen. Times are of one run each on this machine: compare them with each other, not with others'.
"""

from __future__ import annotations

import functools
import shutil
import statistics
import tempfile
import uuid
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from labs.engines.engine import Engine, Work
from labs.equipment.broker import open_broker
from labs.pipeline.log.generate import Traffic
from labs.runs.engine_run import EngineRun, run_engine

GUARANTEES = (True, False)  # exactly once, and the control
RATE, CLIENTS = 200.0, 100  # of the log: requests per second of event time, and different IPs


@dataclass(frozen=True)
class Comparison:
    """The runs in their order, and what they have in common."""

    records: int
    kills: int
    seed: int
    runs: tuple[EngineRun, ...]

    @property
    def as_expected(self) -> bool:
        """Tell whether all runs of exactly once are valid and all controls, if killed, are found doubled."""
        return all(
            run.audit.valid if run.exactly_once else run.audit.duplicated > 0 or not self.kills for run in self.runs
        )

    def as_dict(self) -> dict[str, Any]:
        """Return plain values for JSON."""
        return {
            "records": self.records,
            "kills": self.kills,
            "seed": self.seed,
            "runs": [
                {
                    "engine": run.engine,
                    "guarantee": guarantee(run),
                    "lost": run.audit.lost,
                    "duplicated": run.audit.duplicated,
                    "verdict": str(run.audit.verdict),
                    "recovery_median": recovery(run),
                    "recoveries": [round(each, 2) for each in run.recoveries],
                    "kills": [round(each, 2) for each in run.kills],
                    "first_result": run.first_result and round(run.first_result, 2),
                    "seconds": round(run.seconds, 1),
                    "audit": run.audit.as_dict(),
                }
                for run in self.runs
            ],
        }


def guarantee(run: EngineRun) -> str:
    return "exactly once" if run.exactly_once else "at least once"


def recovery(run: EngineRun) -> float | None:
    """Return the median of seconds from a kill to the next new committed result; None without a kill."""
    return round(statistics.median(run.recoveries), 2) if run.recoveries else None


def compare(
    engines: Iterable[Engine],
    records: int,
    kills: int,
    seed: int,
    say: Callable[[str], object] = lambda line: None,
    guarantees: Iterable[bool] = GUARANTEES,
) -> Comparison:
    """Run every engine, and its control. Raises ValueError for too short a log, NotInstalled."""
    log = list(Traffic(requests=records, seed=seed, rate=RATE, clients=CLIENTS))
    runs = []
    directory = Path(tempfile.mkdtemp(prefix="labs-engines-"))
    turns = [(engine, exactly_once) for exactly_once in guarantees for engine in engines]
    try:
        with open_broker() as broker:
            for turn, (engine, exactly_once) in enumerate(turns, start=1):
                name = f"{engine.name}-{uuid.uuid4().hex[:8]}"
                work = Work(
                    broker.bootstrap_servers, f"{name}-source", f"{name}-sink", directory / name, name, exactly_once
                )
                prefix = f"{turn} of {len(turns)}: {engine.name}, {'exactly' if exactly_once else 'at least'} once"
                say(prefix)
                run = run_engine(engine, work, log, kills, seed, functools.partial(_say_of, say, prefix))
                say(f"{prefix}: {run.audit.lost} lost, {run.audit.duplicated} duplicated, {run.audit.verdict}")
                runs.append(run)
    finally:
        shutil.rmtree(directory, ignore_errors=True)
    return Comparison(records, kills, seed, tuple(runs))


def _say_of(say: Callable[[str], object], run: str, line: str) -> None:
    say(f"{run}: {line}")
