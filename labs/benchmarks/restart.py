"""How long a crashed query takes to recover: in a session that still runs, by a cold start, and by a hot spare."""

from __future__ import annotations

import contextlib
import statistics
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator
from typing import Any

from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession
from pyspark.sql.streaming import StreamingQuery

from exactly_once_kafka.sink import ExactlyOnceKafkaSink
from labs.equipment.broker import Broker
from labs.equipment.spark import spark_session
from labs.equipment.topics import create_topic
from labs.equipment.waiting import eventually
from labs.evidence.readers.results import read_visible
from labs.faults.fault_points import Fault, FaultPoints
from labs.faults.job import JobProcess
from labs.pipeline.log.generate import classroom
from labs.pipeline.log.replay import close_windows, replay
from labs.pipeline.query.ip_count import count_ips, read_source, start_query

BATCH = 4  # the first batch that crashes, before it has written anything
RECORDS = 80  # in a batch, and in a window
LIVING = "restart of a query in a living session"
KILLED = {"cold start after a killed process": False, "hot spare after a killed process": True}


def measure(rounds: int = 5) -> Iterator[tuple[str, float, str]]:
    """Yield (what, seconds, "s") from the crash to the first new committed result: the median, and the longest.

    The ways take turns, so that a slow phase of the machine slows all of them.
    """
    with Broker() as broker, contextlib.ExitStack() as kept:
        servers = broker.bootstrap_servers
        source = create_topic(servers, "classroom", 1)
        log = classroom(windows=BATCH + 2 * len(KILLED) * rounds + 4)  # a window is a batch, a kill takes two
        close_windows(replay(log, servers, source).last_time_ms, servers, source)
        spark = spark_session()
        victims = kept.enter_context(_Victims(servers, source))
        taken: dict[str, list[float]] = {what: [] for what in (LIVING, *KILLED)}
        for _ in range(rounds):
            taken[LIVING].append(_in_session(spark, servers, source))
            for what, spare in KILLED.items():
                taken[what].append(victims.kill_and_restart(spare))
        for what, seconds in taken.items():
            yield f"{what}, p50 of {rounds}", statistics.median(seconds), "s"
            yield f"{what}, longest of {rounds}", max(seconds), "s"


def _in_session(spark: SparkSession, servers: str, source: str) -> float:
    topic, points = create_topic(servers, f"sink_{uuid.uuid4().hex[:8]}", 1), FaultPoints()
    sink = ExactlyOnceKafkaSink(topic, topic, bootstrap_servers=servers, writers="driver", points=points)
    with tempfile.TemporaryDirectory() as checkpoint:

        def start() -> StreamingQuery:
            records = read_source(spark, servers, source, records_per_batch=RECORDS)
            return start_query(count_ips(records), sink, checkpoint)

        with points.armed(Fault("before_rows", BATCH)), contextlib.suppress(StreamingQueryException):
            start().awaitTermination()
        seconds = _until_more(servers, topic, start)
        for query in spark.streams.active:
            query.stop()
        return seconds


class _Victims:
    """One count whose driver is killed again and again: the driver that takes over is the next one to be killed."""

    def __init__(self, servers: str, source: str):
        self._servers, self._batch = servers, BATCH
        self._topic = create_topic(servers, f"sink_{uuid.uuid4().hex[:8]}", 1)
        self._checkpoint = tempfile.TemporaryDirectory()
        self._options: dict[str, Any] = dict(
            bootstrap_servers=servers,
            checkpoint=self._checkpoint.name,
            source_topic=source,
            sink_topic=self._topic,
            name=self._topic,
            records_per_batch=RECORDS,
        )
        self._driver = JobProcess(self._held(), **self._options)

    def kill_and_restart(self, spare: bool) -> float:
        """Return the seconds from the kill to the first new result, by a cold start or by a spare."""
        with contextlib.ExitStack() as unless_it_drives:
            warm = unless_it_drives.enter_context(JobProcess(warm=True)) if spare else None
            eventually(lambda: self._driver.paused and (warm is None or warm.is_warm), timeout=120)
            self._batch += 2
            seconds = _until_more(self._servers, self._topic, lambda: self._replace(warm))
            unless_it_drives.pop_all()
        return seconds

    def _replace(self, warm: JobProcess | None) -> None:
        self._driver.close()
        if warm:
            warm.take_over(self._held(), **self._options)
        self._driver = warm or JobProcess(self._held(), **self._options)

    def _held(self) -> tuple[Fault]:
        """Return the fault that pauses a driver before it writes `_batch`, so that it can be killed there."""
        return (Fault("before_rows", self._batch, "pause"),)

    def __enter__(self) -> _Victims:
        return self

    def __exit__(self, *_: object) -> None:
        self._driver.close()
        self._checkpoint.cleanup()


def _until_more(servers: str, topic: str, restart: Callable[[], object]) -> float:
    """Restart, and return the seconds until the topic has more results than before."""
    before, started = len(read_visible(servers, topic)), time.perf_counter()
    restart()
    while len(read_visible(servers, topic)) == before:
        if time.perf_counter() - started > 120:
            raise TimeoutError("no new result within 120 s of the restart")
    return time.perf_counter() - started
