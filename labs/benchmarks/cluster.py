"""The same count in local mode and on a standalone cluster of two executors, in turn."""

from __future__ import annotations

import statistics
import tempfile
import time
import uuid
from collections.abc import Iterator

from labs.equipment.broker import Broker
from labs.equipment.spark_cluster import SparkCluster
from labs.equipment.topics import create_topic
from labs.equipment.waiting import eventually
from labs.faults.job import JobProcess
from labs.pipeline.log.generate import Traffic
from labs.pipeline.log.replay import close_windows, replay


def measure(records: int = 1_000_000, rounds: int = 3) -> Iterator[tuple[str, float, str]]:
    """Yield (what, median, unit): records per second of each, from the first batch's start to the job's end.

    Both jobs are processes of their own with two cores for the work; the time to start them does not count.
    """
    with Broker(jvm_options=()) as broker, SparkCluster(workers=2) as cluster:
        servers = broker.bootstrap_servers
        source = create_topic(servers, "records", 2)
        sent = replay(Traffic(requests=records, disorder_ms=0), servers, source)
        close_windows(sent.last_time_ms, servers, source)
        masters = {"local[2]": "local[2]", "standalone, two executors": cluster.master}
        seconds: dict[str, list[float]] = {name: [] for name in masters}
        for _ in range(rounds):
            for name, master in masters.items():
                seconds[name].append(_count(servers, source, master))
        for name, measured in seconds.items():
            yield f"{records:,} records counted, {name}", records / statistics.median(measured), "records/s"


def _count(servers: str, source: str, master: str) -> float:
    results = create_topic(servers, f"results_{uuid.uuid4().hex[:8]}", 1)
    with (
        tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as checkpoint,
        JobProcess(
            environment={"SPARK_MASTER": master},
            bootstrap_servers=servers,
            checkpoint=checkpoint,
            source_topic=source,
            sink_topic=results,
            name=results,
        ) as job,
    ):
        eventually(lambda: job.has_begun(0) or not job.running, timeout=120, interval=0.01)
        started = time.perf_counter()
        job.wait(300)
        return time.perf_counter() - started
