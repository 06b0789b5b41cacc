"""How long a crashed query takes to come back: in a living session, and as a killed process, cold or by a hot spare."""

from __future__ import annotations

import contextlib
import statistics
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator
from typing import Any

from pyspark.errors import StreamingQueryException

from exactly_once_kafka.sink import ExactlyOnceKafkaSink
from labs.equipment.broker import Broker
from labs.equipment.eventually import eventually
from labs.equipment.spark import spark_session
from labs.equipment.topics import create_topic
from labs.evidence.readers.results import read_visible
from labs.faults.fault import Fault, FaultPoints
from labs.faults.job import JobProcess
from labs.pipeline.log.generate import classroom
from labs.pipeline.log.replay import close_windows, replay
from labs.pipeline.query.ip_count import count_ips, read_source, start_query

BATCH = 4  # in which it crashes, before it has written anything


def measure(rounds: int = 5) -> Iterator[tuple[str, float, str]]:
    """Yield (what, seconds, "s") from the crash to the first new committed result: the median, and the longest.

    The ways are taken in turn, so that what slows the machine down for a while slows all of them.
    """
    with Broker() as broker:
        servers = broker.bootstrap_servers
        source = create_topic(servers, "classroom", 1)
        close_windows(replay(classroom(), servers, source).last_time_ms, servers, source)
        spark = spark_session()
        ways: dict[str, Callable[[], float]] = {
            "restart of a query in a living session": lambda: _in_session(spark, servers, source),
            "cold start after a killed process": lambda: _as_process(servers, source, spare=False),
            "hot spare after a killed process": lambda: _as_process(servers, source, spare=True),
        }
        taken: dict[str, list[float]] = {what: [] for what in ways}
        for _ in range(rounds):
            for what, restart in ways.items():
                taken[what].append(restart())
        for what, seconds in taken.items():
            yield f"{what}, p50 of {rounds}", statistics.median(seconds), "s"
            yield f"{what}, longest of {rounds}", max(seconds), "s"


def _in_session(spark, servers: str, source: str) -> float:
    topic, checkpoint = create_topic(servers, f"sink_{uuid.uuid4().hex[:8]}", 1), tempfile.mkdtemp()
    points = FaultPoints()
    sink = ExactlyOnceKafkaSink(topic, topic, bootstrap_servers=servers, points=points)

    def start():
        return start_query(count_ips(read_source(spark, servers, source, records_per_batch=80)), sink, checkpoint)

    with points.armed(Fault("before_write", BATCH)), contextlib.suppress(StreamingQueryException):
        start().awaitTermination()
    return _until_more(servers, topic, start)


def _as_process(servers: str, source: str, spare: bool) -> float:
    topic, checkpoint = create_topic(servers, f"sink_{uuid.uuid4().hex[:8]}", 1), tempfile.mkdtemp()
    options: dict[str, Any] = dict(
        bootstrap_servers=servers,
        checkpoint=checkpoint,
        source_topic=source,
        sink_topic=topic,
        name=topic,
        records_per_batch=80,
    )
    with contextlib.ExitStack() as jobs:
        # It is held where it is to be killed, until the spare is warm.
        killed = jobs.enter_context(JobProcess((Fault("before_write", BATCH, "pause"),), **options))
        warm = jobs.enter_context(JobProcess(warm=True)) if spare else None
        eventually(lambda: killed.paused and (warm is None or warm.is_warm), timeout=120)

        def restart() -> JobProcess:
            killed.kill()
            if warm is None:
                return jobs.enter_context(JobProcess(**options))
            warm.take_over(**options)
            return warm

        return _until_more(servers, topic, restart)


def _until_more(servers: str, topic: str, restart) -> float:
    """Restart, and return the seconds until the topic has more results than before."""
    before, started = len(read_visible(servers, topic)), time.perf_counter()
    running = restart()
    while len(read_visible(servers, topic)) == before:
        if time.perf_counter() - started > 120:
            raise TimeoutError("no new result within 120 s of the restart")
    seconds = time.perf_counter() - started
    if isinstance(running, JobProcess):
        running.wait(120)
    else:
        running.awaitTermination()
    return seconds
