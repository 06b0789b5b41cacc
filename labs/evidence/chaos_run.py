"""Chaos, and the judgement: traffic flows, faults strike at random, and an auditor says what came of it.

    report = run_chaos(ChaosPlan(seed=7, minutes=3), Path("out/chaos"))
    assert report.valid

When the time is over nothing strikes any more, the last windows are closed, and the job may finish its work. The
audit compares what was sent with what two readers saw, one that watched all along and one that came at the end;
and each partition's sentinel, a record written last of all, must be readable.

Where it stops: the seed decides what is struck, where and in which order, but not exactly when, since a restart
takes as long as it takes. Two runs of one seed are alike, not equal.
"""

from __future__ import annotations

import contextlib
import shutil
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from confluent_kafka import Producer

from labs.equipment import create_topic, eventually
from labs.evidence.audit import SourceHistory, audit
from labs.evidence.chaos_report import ChaosReport, Sample, recoveries
from labs.evidence.checkpoint_files import log_files, read_plan
from labs.evidence.expected import count_by_window
from labs.evidence.prediction import read_source_records
from labs.evidence.reader import read_results, read_to_end
from labs.evidence.watcher import Watcher
from labs.faults.chaos import KILLS, ChaosPlan, Journal, Strike
from labs.faults.chaos.broker_lane import KINDS as BROKER_KINDS
from labs.faults.chaos.broker_lane import BrokerLane
from labs.faults.chaos.driver_lane import KINDS as DRIVER_KINDS
from labs.faults.chaos.driver_lane import DriverLane
from labs.faults.chaos.network_lane import KINDS as NETWORK_KINDS
from labs.faults.chaos.network_lane import NetworkLane
from labs.faults.proxy import proxied_broker
from labs.pipeline.at_least_once import SINK_TOPIC
from labs.pipeline.generate import Traffic
from labs.pipeline.live_traffic import LiveTraffic
from labs.pipeline.source import CLOSING_CLIENT, SOURCE_TOPIC

SPEED = 5  # seconds of event time per second: a window is complete every second
SINK_PARTITIONS = 3
TRIGGER = 0.5  # seconds
EVERY = 0.5  # seconds between two samples
PATIENCE = 120.0  # seconds without a new result until what is missing is given up
SENTINEL = b"sentinel"


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
        watched = watcher.stop()
        came_later = read_results(servers, SINK_TOPIC)
        verdict = audit(
            expected,
            watched,
            second_reader=came_later,
            sentinels=_sentinels(servers, plan.transaction_timeout),
            source=SourceHistory(traffic.acknowledged, _stored(servers), traffic.indeterminate),
            indeterminate=traffic.indeterminate.total(),
            reader_error=f"the run did not come to its end: {error}" if error else None,
        )
        kills = [strike.began for strike in journal.strikes if strike.kind in KILLS["driver"]]
        arrivals = [moment - journal.started for moment in watcher.arrivals]
    if verdict.valid:
        for evidence in ("kafka", "checkpoint"):
            shutil.rmtree(directory / evidence, ignore_errors=True)
    return ChaosReport(plan, verdict, journal.strikes, samples, recoveries(kills, arrivals), traffic.records, directory)


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


def _stored(servers: str) -> Counter[tuple[int, str]]:
    records = ((time_ms, client) for _, _, time_ms, client in read_source_records(servers, SOURCE_TOPIC))
    return Counter(record for record in records if record[1] != CLOSING_CLIENT)


def _sentinels(servers: str, timeout: float) -> dict[int, bool]:
    """Write a record to each partition of the sink topic, and tell of which partitions it can be read."""
    producer = Producer({"bootstrap.servers": servers, "acks": "all", "log_level": 0})
    for partition in range(SINK_PARTITIONS):
        producer.produce(SINK_TOPIC, b"", SENTINEL, partition)
    producer.flush(60)

    readable: set[int] = set()

    def all_readable() -> bool:
        records = read_to_end(servers, SINK_TOPIC, "read_committed")
        readable.update(record.partition() for record in records if record.key() == SENTINEL)
        return len(readable) == SINK_PARTITIONS

    with contextlib.suppress(TimeoutError):
        eventually(all_readable, timeout=timeout + 20, interval=1)
    return {partition: partition in readable for partition in range(SINK_PARTITIONS)}
