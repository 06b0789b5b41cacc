"""How fast a log is parsed, sent to Kafka, and counted by Spark."""

from __future__ import annotations

import resource
import sys
import tempfile
import time
import uuid
from collections.abc import Iterator
from pathlib import Path

from pyspark.sql import SparkSession

from exactly_once_kafka.sink import ExactlyOnceKafkaSink
from labs.equipment.broker import Broker
from labs.equipment.spark import spark_session
from labs.equipment.topics import create_topic
from labs.pipeline.log.access_log import read_access_log
from labs.pipeline.log.generate import Traffic, format_line
from labs.pipeline.log.log_report import LogReport
from labs.pipeline.log.replay import close_windows, in_event_time_order, replay
from labs.pipeline.query.ip_count import count_ips, read_source, start_query


def measure(small: int = 2_000_000, large: int = 10_000_000) -> Iterator[tuple[str, float, str]]:
    """Yield (what, value, unit): lines parsed, records produced and records counted per second.

    The last value is the rate of the additional records, (large − small) / (time of large − time of small), in which
    the time to start cancels out. The memory is that of Python alone; Spark and Kafka are processes of their own.
    """
    with tempfile.TemporaryDirectory() as directory:
        log = Path(directory, "access.log")
        lines = 500_000
        log.write_text("".join(format_line(access) + "\n" for access in Traffic(requests=lines)))
        started = time.perf_counter()
        for _ in read_access_log([log], LogReport()):
            pass
        yield "log lines parsed", lines / (time.perf_counter() - started), "lines/s"
        with Broker(jvm_options=()) as broker:
            servers = broker.bootstrap_servers
            topic = create_topic(servers, "ingested", 1)
            started = time.perf_counter()
            replay(in_event_time_order(read_access_log([log], LogReport())), servers, topic)
            yield "log lines into Kafka, parsed and ordered", lines / (time.perf_counter() - started), "lines/s"
            spark = spark_session(quick_start=False)
            _count(spark, servers, topic)  # warms the JVM up; otherwise only the short run would include the warm-up
            seconds = {}
            for records in (small, large):
                topic = create_topic(servers, f"records_{records}", 1)
                started = time.perf_counter()
                sent = replay(Traffic(requests=records, disorder_ms=0), servers, topic)
                yield f"{records:,} records produced", records / (time.perf_counter() - started), "records/s"
                close_windows(sent.last_time_ms, servers, topic)
                seconds[records] = _count(spark, servers, topic)
                yield f"{records:,} records counted", records / seconds[records], "records/s"
                yield f"this process's memory at its peak, after {records:,} records", _peak_megabytes(), "MB"
            margin = (large - small) / (seconds[large] - seconds[small])
            yield "counted at the margin", margin, "records/s"


def _peak_megabytes() -> float:
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss  # KiB, on macOS bytes
    return peak / (1e6 if sys.platform == "darwin" else 1e6 / 1024)


def _count(spark: SparkSession, servers: str, topic: str) -> float:
    """Count one topic exactly once and return how many seconds the query took."""
    results = create_topic(servers, f"results_{uuid.uuid4().hex[:8]}", 1)
    sink = ExactlyOnceKafkaSink(results, results, bootstrap_servers=servers, writers="driver")
    records = read_source(spark, servers, topic, minPartitions="2")
    with tempfile.TemporaryDirectory() as checkpoint:
        started = time.perf_counter()
        start_query(count_ips(records), sink, checkpoint).awaitTermination()
        return time.perf_counter() - started
