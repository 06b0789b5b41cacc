"""How long a crashed query takes to come back: in a living session, and as a killed process."""

from __future__ import annotations

import contextlib
import statistics
import tempfile
import time
import uuid
from collections.abc import Iterator

from pyspark.errors import StreamingQueryException

from labs.equipment import Broker, create_topic, spark_session
from labs.evidence.reader import read_results
from labs.faults import Fault, JobFailed, JobProcess, armed
from labs.pipeline import ExactlyOnceKafkaSink, close_windows, count_ips, read_source, replay, start_query
from labs.pipeline.generate import classroom

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
    sink = ExactlyOnceKafkaSink(topic, topic, bootstrap_servers=servers)

    def start():
        return start_query(count_ips(read_source(spark, servers, source, records_per_batch=80)), sink, checkpoint)

    with armed(CRASH), contextlib.suppress(StreamingQueryException):
        start().awaitTermination()
    return _until_more(servers, topic, start)


def _as_process(servers: str, source: str) -> float:
    topic, checkpoint = create_topic(servers, f"sink_{uuid.uuid4().hex[:8]}", 1), tempfile.mkdtemp()
    options = dict(
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
    before, started = len(read_results(servers, topic)), time.perf_counter()
    running = restart()
    while len(read_results(servers, topic)) == before:
        if time.perf_counter() - started > 120:
            raise TimeoutError("no new result within 120 s of the restart")
    seconds = time.perf_counter() - started
    running.wait(120) if isinstance(running, JobProcess) else running.awaitTermination()
    return seconds
