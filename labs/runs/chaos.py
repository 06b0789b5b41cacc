"""Chaos, and the judgement: traffic flows, faults strike at random, and an auditor says what came of it.

    report = run_chaos(ChaosPlan(seed=7, minutes=3), Path("out/chaos"))
    assert report.valid

When the time is over nothing strikes any more, the last windows are closed, and the job may finish its work. Then it
is judged (`chaos_audit`).

Where it stops: the seed decides what is struck, where and in which order, but not exactly when, since a restart
takes as long as it takes. Two runs of one seed are alike, not equal.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable
from pathlib import Path

from labs.equipment.topics import create_topic
from labs.evidence.auditor.expected import count_by_window
from labs.evidence.checkpoint.files import log_files, read_plan
from labs.evidence.readers.watcher import Watcher
from labs.faults.chaos.broker_lane import KINDS as BROKER_KINDS
from labs.faults.chaos.broker_lane import BrokerLane
from labs.faults.chaos.driver_lane import KINDS as DRIVER_KINDS
from labs.faults.chaos.driver_lane import DriverLane
from labs.faults.chaos.journal import Journal, Strike
from labs.faults.chaos.network_lane import KINDS as NETWORK_KINDS
from labs.faults.chaos.network_lane import NetworkLane
from labs.faults.chaos.plan import KILLS, ChaosPlan
from labs.faults.proxy import proxied_broker
from labs.pipeline.log.generate import Traffic
from labs.pipeline.log.live_traffic import LiveTraffic
from labs.pipeline.records import SINK_TOPIC, SOURCE_TOPIC
from labs.runs.chaos_audit import LOOK_FOR_TIMEOUTS, judge
from labs.runs.chaos_report import ON_ITS_WAY, ON_ITS_WAY_TO_A_SPARE, ChaosReport, History, Sample, recoveries

SPEED = 5  # seconds of event time per second: a window is complete every second
SINK_PARTITIONS = 3
TRIGGER = 0.5  # seconds
EVERY = 0.5  # seconds between two samples
PATIENCE = 120.0  # seconds without a new result until what is missing is given up


def run_chaos(
    plan: ChaosPlan,
    directory: Path,
    on_strike: Callable[[Strike], object] = lambda strike: None,
    on_sample: Callable[[Sample], object] = lambda sample: None,
) -> ChaosReport:
    """Run the pipeline through the chaos and judge it. Its evidence stays in `directory`, unless it is valid."""
    directory.mkdir(parents=True)
    with proxied_broker(nodes=plan.nodes, directory=directory / "kafka") as (broker, proxy):
        servers = broker.bootstrap_servers
        # One partition at the source: two could be out of step by more than the lateness that windows allow.
        create_topic(servers, SOURCE_TOPIC, 1, broker.replication)
        create_topic(servers, SINK_TOPIC, SINK_PARTITIONS, broker.replication)
        journal, watcher = Journal(on_strike), Watcher(servers, SINK_TOPIC)
        requests = Traffic(requests=1 << 40, seed=plan.seed, rate=plan.rate / SPEED, clients=200)
        traffic = LiveTraffic(requests, servers, rate=plan.rate)
        driver = DriverLane(
            plan.of(DRIVER_KINDS),
            plan.seed,
            journal,
            job_options(plan, servers, directory),
            plan.transaction_timeout,
            directory / "drivers.log",
            plan.points,
            plan.spare,
        )
        lanes = [
            driver,
            BrokerLane(plan.of(BROKER_KINDS), plan.seed, journal, broker),
            NetworkLane(plan.of(NETWORK_KINDS), plan.seed, journal, proxy),
        ]
        samples: list[Sample] = []

        def look() -> None:
            time.sleep(EVERY)
            samples.append(
                Sample(journal.now, traffic.records, _processed(directory / "checkpoint"), len(watcher.arrivals))
            )
            on_sample(samples[-1])

        try:
            for lane in lanes:
                lane.start()
            while not plan.is_done(journal.now, journal.strikes) and not any(lane.error for lane in lanes):
                look()
                for lane in lanes:
                    if plan.is_done(journal.now, journal.strikes, lane.kinds):
                        lane.calm()
            for lane in lanes:
                lane.calm()
            for lane in lanes[1:]:
                lane.join()
            proxy.disarm()
            traffic.stop()
            expected = count_by_window(traffic.sent.elements())
            _let_it_finish(driver, watcher, len(expected), look)
        finally:
            driver.stop()
            traffic.close()
        error = next((lane.error for lane in lanes if lane.error), None)
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
    """Return how the job is to be run, as options of JobProcess."""
    return {
        "environment": {"SPARK_MASTER": f"local-cluster[{plan.executors},1,1024]"} if plan.executors else {},
        "bootstrap_servers": servers,
        "checkpoint": directory / "checkpoint",
        "sink": plan.sink,
        "trigger": TRIGGER,
        "transaction_timeout_ms": int(plan.transaction_timeout * 1000),
    }


def _let_it_finish(driver: DriverLane, watcher: Watcher, expected: int, look: Callable[[], None]) -> None:
    """Wait until as many different results are visible as are expected, or none has come for too long."""
    seen, since = 0, time.monotonic()
    while (seen_now := len(watcher.distinct)) < expected and driver.is_alive():
        if seen_now > seen:
            seen, since = seen_now, time.monotonic()
        elif time.monotonic() - since > PATIENCE:
            return
        look()


def _processed(checkpoint: Path) -> int:
    """Return how many records of the source are in batches that are complete."""
    commits = log_files(checkpoint / "commits")
    try:
        return sum(read_plan(checkpoint / "offsets" / str(max(commits))).end.values()) if commits else 0
    except (OSError, ValueError):  # it is being written
        return 0
