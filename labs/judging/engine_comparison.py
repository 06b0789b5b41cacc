"""Several engines count the same log, with the same kills and the same outage, and the same auditor judges them.

The runs alternate: trial by trial, and in each trial one engine after the other. What an engine promises is in its
module in labs/engines; a report has only observations. Each time was measured in one run: compare it only with times
of the same report.

A report has the machine's sizes and versions, but no names or paths. One report is part of the lab, for the lessons,
which must run without the other engines (`recorded_engines`).
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import json
import os
import platform
import re
import statistics
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import psutil
import pyspark

from labs.engines.engine import COMMIT_SECONDS, TRANSACTION_TIMEOUT_MS, Engine, Work
from labs.engines.environment import LOCKS
from labs.equipment.broker import Broker
from labs.equipment.child_process import temporary_directory
from labs.equipment.jars import FLINK, KAFKA_VERSION
from labs.faults.proxy import Proxy, proxied_broker
from labs.judging.engine_run import EngineRun, OutageRun, SpeedRun, run_engine, run_outage, run_speed
from labs.judging.workloads import CLIENTS, Count
from labs.pipeline.log.generate import Traffic

LOCKED = re.compile(r"^([\w-]+)==([\w.]+)", re.MULTILINE)


def machine() -> dict[str, Any]:
    """Describe the machine of the runs: cores, memory, system and versions, without any name or path."""
    return {
        "cores": os.cpu_count(),
        "memory_gib": round(psutil.virtual_memory().total / (1 << 30)),
        "system": platform.system(),
        "processor": platform.machine(),
        "python": platform.python_version(),
        "versions": _versions(),
    }


def _versions() -> dict[str, str]:
    """Return the versions of Kafka and of each engine."""
    locks = "".join(lock.read_text() for lock in sorted(LOCKS.glob("*.txt")))
    locked = {name: version for name, version in LOCKED.findall(locks) if name != "setuptools"}
    return {
        "kafka": KAFKA_VERSION,
        "pyspark": pyspark.__version__,
        "flink connector": FLINK.rpartition(":")[2],
        "kafka-streams": KAFKA_VERSION,
        **locked,
    }


SPEED_RATE = 400.0  # requests per second of event time, in a run without kills
LATE_RECORDS, LATE_SECONDS = 40_000, 20.0  # sent after the backlog, within so many seconds
OUTAGE_SECONDS = 16.0
SHORT_TIMEOUT_MS = 10_000  # shorter than the outage
LONG_TIMEOUT_MS = 240_000  # longer than the outage and a restart together, on a busy machine too
OUTAGE_RECORDS = 16_000

Run = EngineRun | OutageRun | SpeedRun
Say = Callable[[str], object]

TRIALS = ("kills", "outage", "speed")


class Size(NamedTuple):
    """The sizes of the runs."""

    records: int = 40_000  # of a run with kills
    kills: int = 3
    backlog: int = 300_000  # of a run without kills
    long_run: bool = False  # in a run without kills: whether JVMs use all of their compilers
    commit_seconds: int = COMMIT_SECONDS  # between two checkpoints, commits or micro-batches
    partitions: int = 1  # of the source, in a run without kills


@dataclass(frozen=True)
class Found:
    """One run, and the seed of its log and of its kills."""

    seed: int
    run: Run

    @property
    def as_expected(self) -> bool:
        """Tell whether an exactly-once run is valid, and a control that was killed has duplicates.

        If a transaction times out before the engine is back, its results may be lost, but none may be duplicated.
        """
        run = self.run
        if isinstance(run, OutageRun) and run.timeout_seconds < run.away_seconds:
            return run.audit.duplicated == 0
        killed = isinstance(run, EngineRun) and run.kills
        return run.audit.valid if run.exactly_once else run.audit.duplicated > 0 or not killed

    def as_dict(self) -> dict[str, Any]:
        """Return plain values for JSON."""
        audit = self.run.audit
        found = {"lost": audit.lost, "duplicated": audit.duplicated, "expected": audit.expected}
        told = audit.as_dict()
        return {
            "trial": self.run.trial,
            "seed": self.seed,
            "engine": self.run.engine,
            "guarantee": guarantee(self.run.exactly_once),
            **found,
            **{name: told[name] for name in ("verdict", "reason", "anomalies", "examples")},
            **self.run.as_dict(),
        }


def guarantee(exactly_once: bool) -> str:
    return "exactly once" if exactly_once else "at least once"


def compare(
    engines: Sequence[Engine],
    seeds: Iterable[int],
    size: Size,
    trials: Sequence[str] = TRIALS,
    say: Say = lambda line: None,
) -> Iterator[Found]:
    """Run every engine in every trial, for each seed. Raises ValueError if the log is too short, NotInstalled."""
    with temporary_directory("labs-engines-") as directory:
        for seed, trial in itertools.product(seeds, trials):
            with contextlib.ExitStack() as opened:
                if trial == "outage":
                    broker, proxy = opened.enter_context(proxied_broker())
                else:  # a proxy would slow it down
                    broker, proxy = opened.enter_context(Broker()), None
                bench = _Bench(directory, broker.bootstrap_servers, proxy, seed, size, say)
                yield from bench.take_turns(trial, engines)


@dataclass(frozen=True)
class _Bench:
    """One broker and one seed, and a proxy before the broker if the trial needs one."""

    directory: Path
    servers: str
    proxy: Proxy | None
    seed: int
    size: Size
    say: Say

    def take_turns(self, trial: str, engines: Sequence[Engine]) -> Iterator[Found]:
        """Run one trial in each of its variants (guarantee or timeout), with one engine after the other."""
        if trial == "kills":
            yield from (self.kills(engine, once) for once in (True, False) for engine in engines)
        elif trial == "outage":
            timeouts = (SHORT_TIMEOUT_MS, LONG_TIMEOUT_MS)
            yield from (self.outage(engine, timeout_ms) for timeout_ms in timeouts for engine in engines)
        else:
            yield from (self.speed(engine) for engine in engines)

    def kills(self, engine: Engine, exactly_once: bool) -> Found:
        work, say = self._work(engine, exactly_once), self._telling(engine, "kills", exactly_once)
        workload = Count(self.size.records, 1, self.seed)
        return self._found(say, run_engine(engine, work, workload, self.size.kills, self.seed, say))

    def outage(self, engine: Engine, timeout_ms: int) -> Found:
        work, say = self._work(engine, True, timeout_ms), self._telling(engine, f"outage, {timeout_ms} ms", True)
        workload = Count(OUTAGE_RECORDS, 1, self.seed)
        assert self.proxy, "the trial has a proxy"
        return self._found(say, run_outage(engine, work, workload, self.proxy, self.seed, OUTAGE_SECONDS, say))

    def speed(self, engine: Engine) -> Found:
        work, say = self._work(engine, True), self._telling(engine, "speed", True)
        work = replace(work, long_run=self.size.long_run, partitions=self.size.partitions)
        requests = self.size.backlog + LATE_RECORDS
        log = list(Traffic(requests=requests, seed=self.seed, rate=SPEED_RATE, clients=CLIENTS))
        return self._found(say, run_speed(engine, work, log, self.size.backlog, LATE_SECONDS, say))

    def _work(self, engine: Engine, exactly_once: bool, timeout_ms: int = TRANSACTION_TIMEOUT_MS) -> Work:
        name = f"{engine.name}-{uuid.uuid4().hex[:8]}"
        topics = f"{name}-source", f"{name}-sink"
        every = self.size.commit_seconds
        return Work(
            self.servers, *topics, self.directory / name, name, exactly_once, timeout_ms, commit_seconds=every
        )  # fmt: skip

    def _telling(self, engine: Engine, trial: str, exactly_once: bool) -> Say:
        run = f"seed {self.seed}, {trial}: {engine.name}, {guarantee(exactly_once)}"
        return functools.partial(_say_of, self.say, run)

    def _found(self, say: Say, run: Run) -> Found:
        say(f"{run.audit.lost} lost, {run.audit.duplicated} duplicated, {run.audit.verdict}")
        return Found(self.seed, run)


def _say_of(say: Say, run: str, line: str) -> None:
    say(f"{run}: {line}")


RECORDED = Path(__file__).with_name("recorded") / "engines.json"


class EngineReport:
    """A report: `machine` describes where it was made, `runs` has each run as plain values."""

    def __init__(self, path: Path = RECORDED):
        found = json.loads(path.read_text())
        self.machine: dict[str, Any] = found["machine"]
        self.size: dict[str, Any] = found["size"]
        self.runs: list[dict[str, Any]] = found["runs"]

    @property
    def engines(self) -> list[str]:
        """The engines' names, in the order in which they ran first."""
        return list(dict.fromkeys(run["engine"] for run in self.runs))

    def of(self, trial: str, **wanted: object) -> list[dict[str, Any]]:
        """Return the runs of a trial ("kills", "outage" or "speed") that have these values."""
        chosen = [run for run in self.runs if run["trial"] == trial]
        return [run for run in chosen if all(run[name] == value for name, value in wanted.items())]

    def median(self, value: str, engine: str) -> float:
        """Return the median over the seeds of a value of the speed runs. Raises ValueError if no run has it."""
        found = [run[value] for run in self.of("speed", engine=engine) if run[value] is not None]
        if not found:
            raise ValueError(f"no run of {engine} has a {value}")
        return statistics.median(found)

    def ratios(self, value: str, to: str = "spark") -> dict[str, float]:
        """Return engine -> the median of a value of its speed runs, divided by that of the engine `to`."""
        return {engine: round(self.median(value, engine) / self.median(value, to), 2) for engine in self.engines}


def recorded_engines() -> EngineReport:
    """Return the report that is part of the lab."""
    return EngineReport()
