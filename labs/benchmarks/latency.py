"""The time from when a window can be closed until its results can be read, while traffic flows.

A window is *closable* when the first record is sent whose event time moves the watermark past the window's end (its
end plus the allowed lateness). It is *visible* when a read_committed consumer has the last of its results. In
between lie the send, the batch that was running, the batch that moves the watermark, the batch that emits the
window, the sink, and the fetch.

Limitations: traffic, watcher, Spark's driver and the broker share this machine, so their work is in the numbers.
"""

from __future__ import annotations

import statistics
import tempfile
import time
import uuid
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from pyspark.sql import SparkSession
from pyspark.sql.streaming import StreamingQuery

from exactly_once_kafka.sink import ExactlyOnceKafkaSink
from labs.equipment.broker import Broker
from labs.equipment.spark import spark_session
from labs.equipment.topics import create_topic
from labs.equipment.waiting import eventually
from labs.evidence.auditor.expected import count_by_window
from labs.evidence.readers.results import Watcher
from labs.pipeline.log.access_log import Access
from labs.pipeline.log.generate import Traffic
from labs.pipeline.log.live_traffic import LiveTraffic
from labs.pipeline.query.ip_count import Sink, count_ips, read_source, start_query
from labs.pipeline.records import LATENESS_MS, WINDOW_MS, window_start
from labs.pipeline.sinks.at_least_once import AtLeastOnceKafkaSink

RATE = 5_000  # records per second
# Seconds of event time per second: one window in 1.04 s. With one window per second, all windows would end at the
# same moment between two triggers.
SPEED = 4.8
CLIENTS = 200
WARM_UP = 15  # windows that do not count
BATCHES = 10_000  # of which Spark keeps the progress; its default is 100
SINKS: dict[str, Callable[..., Sink]] = {
    "exactly once": lambda topic, servers, **options: ExactlyOnceKafkaSink(
        topic, topic, bootstrap_servers=servers, **options
    ),
    "exactly once, by the driver": lambda topic, servers, **options: ExactlyOnceKafkaSink(
        topic, topic, bootstrap_servers=servers, writers="driver", **options
    ),
    "at least once": lambda topic, servers, **options: AtLeastOnceKafkaSink(
        topic, bootstrap_servers=servers, **options
    ),
}
RUNS = (
    ("exactly once", None),
    ("exactly once, by the driver", None),
    ("at least once", None),
    ("exactly once", 1.0),
    ("exactly once", 5.0),
)


@dataclass(frozen=True)
class Latency:
    """The result of one run: milliseconds from closable to visible per window, and Spark's durations per batch."""

    milliseconds: list[float]
    batches: list[dict[str, int]]  # durationMs

    def percentile(self, percent: int) -> float:
        """Return the latency that this percentage of the windows did not exceed; of few, 99 is nearly the worst."""
        return statistics.quantiles(self.milliseconds, n=100, method="inclusive")[percent - 1]

    def medians(self) -> dict[str, float]:
        """Return the median milliseconds of each part of a batch, by Spark's name for it."""
        parts = self.batches[-1]
        return {part: statistics.median(each.get(part, 0) for each in self.batches) for part in parts}


def measure(windows: int = 60) -> Iterator[tuple[str, float, str]]:
    """Yield (what, value, unit) for each sink and trigger: p50 and p99, then the median of each part of a batch.

    A first run is not reported: it warms the JVMs up. Without it, the sink that is measured first would seem slower.
    """
    with Broker(jvm_options=()) as broker:
        spark = spark_session(quick_start=False)
        run_traffic(spark, broker.bootstrap_servers, "at least once", None, windows)
        for sink, trigger in RUNS:
            run = run_traffic(spark, broker.bootstrap_servers, sink, trigger, windows)
            name = f"{sink}, {f'trigger {trigger:g} s' if trigger else 'back to back'}"
            for percent in (50, 99):
                yield f"{name}: p{percent} of {len(run.milliseconds)} windows", run.percentile(percent), "ms"
            for part, milliseconds in sorted(run.medians().items(), key=lambda item: -item[1]):
                yield f"{name}: median {part}", milliseconds, "ms"


def run_traffic(
    spark: SparkSession,
    bootstrap_servers: str,
    sink: str,
    trigger: float | None = None,
    windows: int = 60,
    warm_up: int = WARM_UP,
) -> Latency:
    """Count steady traffic into one of SINKS until `warm_up + windows` windows are visible; measure the last `windows`.

    `trigger` is the time in seconds from the start of a batch to the start of the next; None: back to back.
    """
    name = uuid.uuid4().hex[:8]
    source, topic = create_topic(bootstrap_servers, f"in-{name}", 1), create_topic(bootstrap_servers, f"out-{name}", 1)
    results = count_ips(read_source(spark, bootstrap_servers, source))
    interval = f"{round((trigger or 0) * 1000)} milliseconds"
    checkpoint = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
    spark.conf.set("spark.sql.streaming.numRecentProgressUpdates", BATCHES)
    query = start_query(results, SINKS[sink](topic, bootstrap_servers), checkpoint.name, processingTime=interval)
    watcher, closable = Watcher(bootstrap_servers, topic), dict[int, float]()
    requests = Traffic(requests=1 << 40, rate=RATE / SPEED, clients=CLIENTS, disorder_ms=0, bursts=False)
    traffic = LiveTraffic(_noting(requests, closable), bootstrap_servers, source, RATE)
    try:
        _wait(lambda: len(closable) >= warm_up and query.lastProgress, query)
        progress = query.lastProgress
        assert progress is not None  # `_wait` waited for it
        first = progress.batchId + 1
        _wait(lambda: len(closable) >= warm_up + windows, query)
        batches = [batch.durationMs for batch in query.recentProgress if batch.batchId >= first]
        traffic.stop()
        expected = len(count_by_window(traffic.sent))
        _wait(lambda: len(watcher.arrivals) == expected, query)
    finally:
        traffic.close()
        query.stop()
        checkpoint.cleanup()
    visible = {}
    for result, moment in zip(watcher.stop(), watcher.arrivals, strict=True):
        visible[result.window_start] = moment
    counted = sorted(closable)[warm_up : warm_up + windows]
    return Latency([(visible[window] - closable[window]) * 1000 for window in counted], batches)


def _noting(accesses: Iterable[Access], closable: dict[int, float]) -> Iterator[Access]:
    """Yield the accesses, and note for each window (by its start) when the access passes that makes it closable."""
    window = None
    for access in accesses:
        if window is None:
            window = window_start(access[0])
        while access[0] >= window + WINDOW_MS + LATENESS_MS:
            closable[window] = time.monotonic()
            window += WINDOW_MS
        yield access


def _wait(condition: Callable[[], object], query: StreamingQuery) -> None:
    """Wait for the condition, at most ten minutes. If the query failed, raises its error."""
    eventually(lambda: condition() or not query.isActive, 600)
    if not query.isActive:
        query.awaitTermination()  # raises
        raise RuntimeError("the query ended by itself, which it never should")
