"""How long a crashed query takes to come back: in a living session, and as a killed process."""

from __future__ import annotations

import contextlib
import statistics
import tempfile
import time
import uuid
from collections.abc import Iterator
from typing import Any

from pyspark.errors import StreamingQueryException

from exactly_once_kafka.sink import ExactlyOnceKafkaSink
from labs.equipment.broker import Broker
from labs.equipment.spark import spark_session
from labs.equipment.topics import create_topic
from labs.evidence.readers.results import read_visible
from labs.faults.fault import Fault, FaultPoints
from labs.faults.job import JobFailed, JobProcess
from labs.pipeline.log.generate import classroom
from labs.pipeline.log.replay import close_windows, replay
from labs.pipeline.query.ip_count import count_ips, read_source, start_query

CRASH = Fault("before_write", 4)


def measure(rounds: int = 5) -> Iterator[tuple[str, float, str]]:
    """Yield (what, median seconds, "s") from the crash to the first new committed result."""
    with Broker() as broker:
        servers = broker.bootstrap_servers
        source = create_topic(servers, "classroom", 1)
        close_windows(replay(classroom(), servers, source).last_time_ms, servers, source)
        spark = spark_session()
        seconds = statistics.median(_in_session(spark, servers, source) for _ in range(rounds))
        yield "restart of a query in a living session", seconds, "s"
        seconds = statistics.median(_as_process(servers, source) for _ in range(rounds))
        yield "restart of a killed process", seconds, "s"


def _in_session(spark, servers: str, source: str) -> float:
    topic, checkpoint = create_topic(servers, f"sink_{uuid.uuid4().hex[:8]}", 1), tempfile.mkdtemp()
    points = FaultPoints()
    sink = ExactlyOnceKafkaSink(topic, topic, bootstrap_servers=servers, points=points)

    def start():
        return start_query(count_ips(read_source(spark, servers, source, records_per_batch=80)), sink, checkpoint)

    with points.armed(CRASH), contextlib.suppress(StreamingQueryException):
        start().awaitTermination()
    return _until_more(servers, topic, start)


def _as_process(servers: str, source: str) -> float:
    topic, checkpoint = create_topic(servers, f"sink_{uuid.uuid4().hex[:8]}", 1), tempfile.mkdtemp()
    options: dict[str, Any] = dict(
        bootstrap_servers=servers,
        checkpoint=checkpoint,
        source_topic=source,
        sink_topic=topic,
        name=topic,
        records_per_batch=80,
    )
    with JobProcess((Fault(CRASH.point, CRASH.batch, "kill"),), **options) as job, contextlib.suppress(JobFailed):
        job.wait(120)
    return _until_more(servers, topic, lambda: JobProcess(**options))


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
