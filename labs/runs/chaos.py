"""Chaos: traffic flows, faults strike at random, and the auditor judges the results.

    report = run_chaos(ChaosPlan(seed=7, minutes=3), Path("out/chaos"))
    assert report.valid

When the time is over, no more faults strike, the last windows are closed, and the job finishes its work.

Then the run is judged. A sentinel, the last record of all, is written to each partition. Readers wait until it can be
read, or until it is certain that an open transaction hangs. The audit compares what was sent with the results of two
readers: one read all the time, and one reads from the beginning at the end.

Limitations: the seed decides what is struck, where and in which order, but not exactly when, since the time that a
restart takes varies. So two runs of one seed are similar, not equal.
"""

from __future__ import annotations

import itertools
import shutil
import statistics
import time
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from labs.equipment.topics import create_topic
from labs.evidence.auditor.anomalies import Anomaly, Verdict
from labs.evidence.auditor.audit import Audit, Reading, SourceHistory, audit
from labs.evidence.auditor.expected import count_by_window
from labs.evidence.auditor.observed import Key, Result
from labs.evidence.checkpoint.checkpoint import log_files, read_plan
from labs.evidence.checkpoint.planned_results import read_source_records
from labs.evidence.readers.results import Watcher, read_results, readable_sentinels, write_sentinels
from labs.faults.chaos_injectors import (
    BROKER_KINDS,
    DRIVER_KINDS,
    KILLS,
    NETWORK_KINDS,
    BrokerInjector,
    ChaosPlan,
    DriverInjector,
    Journal,
    NetworkInjector,
    Strike,
)
from labs.faults.proxy import proxied_broker
from labs.pipeline.log.generate import Traffic
from labs.pipeline.log.live_traffic import LiveTraffic
from labs.pipeline.records import CLOSING_IP, SINK_TOPIC, SOURCE_TOPIC, window_start

# A result that becomes visible so soon after a kill was committed before the kill, since a restart takes longer.
ON_ITS_WAY = 1.5  # seconds
ON_ITS_WAY_TO_A_SPARE = 0.5  # seconds: a hot spare takes longer too


@dataclass(frozen=True)
class Sample:
    """The state of the run at a moment; the seconds and the numbers count from the start of the chaos."""

    seconds: float
    sent: int  # records that the traffic sent
    processed: int  # records in batches that are complete
    visible: int  # results that the watching reader has seen

    @property
    def lag(self) -> int:
        """Records that were sent and are not yet in a complete batch."""
        return max(self.sent - self.processed, 0)


@dataclass(frozen=True)
class History:
    """What the audit judged: expected results, those that a reader saw during the run, those read at the end."""

    expected: Mapping[Key, int] = field(default_factory=dict)
    watched: Sequence[Result] = ()
    at_the_end: Sequence[Result] = ()


@dataclass(frozen=True)
class ChaosReport:
    """The audit of a chaos run, its strikes and its samples. `recoveries` are in seconds."""

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
        """Return the object that `chaos --json` prints. Times are in seconds."""
        plan = self.plan
        return {
            "verdict": str(self.audit.verdict),
            "seed": plan.seed,
            "minutes": plan.minutes,
            "sink": plan.sink_name,
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
        """How many recoveries were measured, their p50 and max. Each is from a driver's kill to the next new result."""
        if not self.recoveries:
            return {"kills": 0}
        p50, longest = statistics.median(self.recoveries), max(self.recoveries)
        return {"kills": len(self.recoveries), "p50": round(p50, 2), "max": round(longest, 2)}


def recoveries(kills: Sequence[float], arrivals: Sequence[float], on_its_way: float = ON_ITS_WAY) -> list[float]:
    """Return the seconds from each kill to the first new result; of several kills before one result, the last counts.

    `kills` and `arrivals` are moments of one clock, in order. A result within `on_its_way` seconds after a kill was
    committed before it.
    """
    found = []
    for kill, next_kill in itertools.pairwise([*kills, float("inf")]):
        after = bisect_right(arrivals, kill + on_its_way)
        if after < len(arrivals) and arrivals[after] < next_kill:
            found.append(arrivals[after] - kill)
    return found


LOOK_FOR_TIMEOUTS = 20.0  # seconds: brokers look for timed-out transactions every 10 seconds


def judge(
    servers: str,
    watcher: Watcher,
    traffic: LiveTraffic,
    expected: Mapping[Key, int],
    patience: float,
    error: Exception | None = None,
    topic: str = SINK_TOPIC,
    source_topic: str = SOURCE_TOPIC,
) -> tuple[Audit, Reading, Reading]:
    """Stop the watcher and audit the run; a transaction hangs if it is open after `patience` seconds.

    Also returns the results that were watched, and those that a new reader sees. `error` is why the run did not finish.
    """
    sentinels, watched, came_later = read_all(servers, watcher, patience, topic)
    stored = _stored(servers, source_topic, traffic.window_ms)
    verdict = audit(
        expected,
        watched,
        second_reader=came_later,
        sentinels=sentinels,
        source=SourceHistory(traffic.acknowledged, stored, traffic.indeterminate),
        indeterminate=traffic.indeterminate.total(),
        reader_error=f"the run did not finish: {error}" if error else None,
    )
    return verdict, watched, came_later


def read_all(
    servers: str, watcher: Watcher, patience: float, topic: str = SINK_TOPIC
) -> tuple[dict[int, bool], Reading, Reading]:
    """Return whether each partition's sentinel can be read, the watched results, and those that a new reader sees.

    Each is read only when all transactions are decided, or one has been open for `patience` seconds.
    """
    write_sentinels(servers, topic)
    watched = watcher.stop(patience=patience)
    readable = readable_sentinels(servers, topic)
    sentinels = {partition: partition in readable for partition in watched.decided}
    return sentinels, watched, read_results(servers, topic, patience=0)


def _stored(servers: str, topic: str, window_ms: int) -> Counter[tuple[int, str]]:
    """Count the records of the source topic per (window, IP), as the traffic does.

    A malformed record has neither time nor IP, and is left out: the traffic sends none.
    """
    return Counter(
        (window_start(time_ms, window_ms), ip)
        for _, _, time_ms, ip in read_source_records(servers, topic)
        if time_ms is not None and ip is not None and ip != CLOSING_IP
    )


SPEED = 5  # seconds of event time per second: a window is complete every second
SINK_PARTITIONS = 3
TRIGGER = 0.5  # seconds
EVERY = 0.5  # seconds between two samples
PATIENCE = 120.0  # seconds to wait for the next missing result


def run_chaos(
    plan: ChaosPlan,
    directory: Path,
    on_strike: Callable[[Strike], object] = lambda strike: None,
    on_sample: Callable[[Sample], object] = lambda sample: None,
) -> ChaosReport:
    """Run the pipeline under chaos and judge it. Its files stay in `directory`, unless the verdict is valid."""
    directory.mkdir(parents=True)
    with proxied_broker(nodes=plan.nodes, directory=directory / "kafka") as (broker, proxy):
        servers = broker.bootstrap_servers
        # One partition at the source: Spark could read two at paces that differ by more than the allowed lateness.
        create_topic(servers, SOURCE_TOPIC, 1, broker.replication)
        create_topic(servers, SINK_TOPIC, SINK_PARTITIONS, broker.replication)
        journal, watcher = Journal(on_strike), Watcher(servers, SINK_TOPIC)
        requests = Traffic(requests=1 << 40, seed=plan.seed, rate=plan.rate / SPEED, clients=200)
        traffic = LiveTraffic(requests, servers, rate=plan.rate)
        driver = DriverInjector(
            plan.of(DRIVER_KINDS),
            plan.seed,
            journal,
            job_options(plan, servers, directory),
            plan.transaction_timeout,
            directory / "drivers.log",
            plan.points,
            plan.spare,
        )
        injectors = [
            driver,
            BrokerInjector(plan.of(BROKER_KINDS), plan.seed, journal, broker),
            NetworkInjector(plan.of(NETWORK_KINDS), plan.seed, journal, proxy),
        ]
        samples: list[Sample] = []

        def look() -> None:
            time.sleep(EVERY)
            samples.append(
                Sample(journal.now, traffic.records, _processed(directory / "checkpoint"), len(watcher.arrivals))
            )
            on_sample(samples[-1])

        try:
            for injector in injectors:
                injector.start()
            while not plan.is_done(journal.now, journal.strikes) and not any(injector.error for injector in injectors):
                look()
                for injector in injectors:
                    if plan.is_done(journal.now, journal.strikes, injector.kinds):
                        injector.calm()
            for injector in injectors:
                injector.calm()
            for injector in injectors[1:]:
                injector.join()
            proxy.disarm()
            traffic.stop()
            expected = count_by_window(traffic.sent.elements())
            _let_it_finish(driver, watcher, len(expected), look)
        finally:
            driver.stop()
            traffic.close()
        error = next((injector.error for injector in injectors if injector.error), None)
        verdict, *readings = judge(
            servers, watcher, traffic, expected, plan.transaction_timeout + LOOK_FOR_TIMEOUTS, error
        )
        kills = [strike.began for strike in journal.strikes if strike.kind in KILLS["driver"]]
        arrivals = [moment - journal.started for moment in watcher.arrivals]
    if verdict.valid:
        for evidence in ("kafka", "checkpoint"):
            shutil.rmtree(directory / evidence, ignore_errors=True)
    return ChaosReport(
        plan,
        verdict,
        journal.strikes,
        samples,
        recoveries(kills, arrivals, ON_ITS_WAY_TO_A_SPARE if plan.spare else ON_ITS_WAY),
        traffic.records,
        directory,
        History(expected, *readings),
    )


def job_options(plan: ChaosPlan, servers: str, directory: Path) -> dict[str, object]:
    """Return the options of JobProcess for the job."""
    return {
        "environment": {"SPARK_MASTER": f"local-cluster[{plan.executors},1,1024]"} if plan.executors else {},
        "bootstrap_servers": servers,
        "checkpoint": directory / "checkpoint",
        "sink": plan.sink,
        "trigger": TRIGGER,
        "transaction_timeout_ms": int(plan.transaction_timeout * 1000),
    }


def _let_it_finish(driver: DriverInjector, watcher: Watcher, expected: int, look: Callable[[], None]) -> None:
    """Wait until all `expected` results are visible, none has come for PATIENCE seconds, or the driver has ended."""
    seen, since = 0, time.monotonic()
    while (seen_now := len(watcher.distinct)) < expected and driver.is_alive():
        if seen_now > seen:
            seen, since = seen_now, time.monotonic()
        elif time.monotonic() - since > PATIENCE:
            return
        look()


def _processed(checkpoint: Path) -> int:
    """Return how many records of the source are in complete batches."""
    commits = log_files(checkpoint / "commits")
    try:
        return sum(read_plan(checkpoint / "offsets" / str(max(commits))).end.values()) if commits else 0
    except (OSError, ValueError):  # Spark is writing the file
        return 0
