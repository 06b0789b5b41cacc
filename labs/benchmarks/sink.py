"""What exactly once costs a batch: the same query into Spark's own Kafka sink and into ours, in turn."""

from __future__ import annotations

import statistics
import tempfile
import uuid
from collections.abc import Callable, Iterator

from pyspark.sql import DataFrame

from exactly_once_kafka.sink import ExactlyOnceKafkaSink
from labs.equipment.broker import Broker
from labs.equipment.spark import spark_session
from labs.equipment.topics import create_topic
from labs.pipeline.log.generate import Traffic
from labs.pipeline.log.replay import replay
from labs.pipeline.query.ip_count import read_source, start_query
from labs.pipeline.sinks.at_least_once import AtLeastOnceKafkaSink
from labs.runs.cost import sparks_own_sink

# rows per batch -> batches per run
SIZES = {100: 40, 10_000: 20, 1_000_000: 3}


def measure(rounds: int = 4) -> Iterator[dict[str, float]]:
    """Yield one row per batch size: medians over the batches of each sink, Spark's and ours, in milliseconds.

    `write` is Spark's own `addBatch`: computing the rows, writing and committing them; `added` is what ours takes
    longer. `batch` is all of a batch, with Spark's planning and checkpoint (`triggerExecution`); the ratio of the
    two is the throughput ratio. The first batch of each run, which warms up, is left out. Runs alternate.
    """
    with Broker(jvm_options=()) as broker:
        servers = broker.bootstrap_servers
        spark = spark_session(quick_start=False)
        for size, batches in SIZES.items():
            source = create_topic(servers, f"rows_{size}", 2)
            replay(Traffic(requests=size * (batches + 1), disorder_ms=0), servers, source)
            times: dict[type, list[dict[str, int]]] = {AtLeastOnceKafkaSink: [], ExactlyOnceKafkaSink: []}
            for _ in range(rounds):
                for kind, measured in times.items():
                    measured += _run(spark, servers, source, kind, size)
            sparks, ours = times.values()
            writes, batch_times = _medians("addBatch", sparks, ours), _medians("triggerExecution", sparks, ours)
            yield {
                "rows per batch": size,
                "batches": len(ours),
                "write, Spark's sink [ms]": writes[0],
                "write, exactly once": writes[1],
                "added [ms]": writes[1] - writes[0],
                "whole batch, Spark's sink [ms]": batch_times[0],
                "whole batch, exactly once": batch_times[1],
                "throughput ratio": batch_times[0] / batch_times[1],
            }


def _medians(name: str, *sinks: list[dict[str, int]]) -> list[float]:
    return [statistics.median(durations[name] for durations in sink) for sink in sinks]


def _sink(kind: type, servers: str, topic: str) -> Callable[[DataFrame, int], object]:
    """Return our sink, or a foreachBatch function that is Spark's own and nothing else."""
    if kind is ExactlyOnceKafkaSink:
        return ExactlyOnceKafkaSink(topic, topic, bootstrap_servers=servers, batch_headers=False)
    return sparks_own_sink(topic, servers)


def _run(spark, servers: str, source: str, kind: type, size: int) -> list[dict[str, int]]:
    """Copy the source through one sink and return Spark's durations of each full batch, in ms."""
    topic = create_topic(servers, f"sink_{uuid.uuid4().hex[:8]}", 1)
    rows = read_source(spark, servers, source, records_per_batch=size).select("key", "value")
    query = start_query(rows, _sink(kind, servers, topic), tempfile.mkdtemp())
    query.awaitTermination()
    full = [batch for batch in query.recentProgress if batch.numInputRows >= size * 0.9]
    return [batch.durationMs for batch in full[1:]]
