"""The cost of exactly once for a batch: the same query writes to Spark's own Kafka sink and to the lab's, in turn.

The lab's sink writes in one run from the driver, in another from the executors.
"""

from __future__ import annotations

import statistics
import tempfile
import uuid
from collections.abc import Iterator

from pyspark.sql import SparkSession

from exactly_once_kafka.sink import WRITERS, ExactlyOnceKafkaSink
from labs.equipment.broker import Broker
from labs.equipment.spark import spark_session
from labs.equipment.topics import create_topic
from labs.pipeline.log.generate import Traffic
from labs.pipeline.log.replay import replay
from labs.pipeline.query.ip_count import Sink, read_source, start_query
from labs.runs.cost import sparks_own_sink

SPARKS = "Spark's own sink"
# rows per batch -> batches per run
SIZES = {100: 40, 10_000: 20, 1_000_000: 3}


def measure(rounds: int = 4) -> Iterator[dict[str, float]]:
    """Yield one row per batch size: medians over the batches of each sink, in milliseconds.

    `write` is Spark's `addBatch`: computing the rows, writing and committing them. `batch` is the whole batch, with
    Spark's planning and checkpoint (`triggerExecution`); the ratio of two of these is the ratio of throughputs. The
    first batch of each run warms up and does not count. Runs alternate.
    """
    with Broker(jvm_options=()) as broker:
        servers = broker.bootstrap_servers
        spark = spark_session(quick_start=False)
        for size, batches in SIZES.items():
            source = create_topic(servers, f"rows_{size}", 2)
            replay(Traffic(requests=size * (batches + 1), disorder_ms=0), servers, source)
            times: dict[str, list[dict[str, int]]] = {SPARKS: [], **{writers: [] for writers in WRITERS}}
            for n in range(rounds):
                for kind in list(times)[:: -1 if n % 2 else 1]:  # in both orders, since the order matters
                    times[kind] += _run(spark, servers, source, kind, size)
            row: dict[str, float] = {"rows per batch": size, "batches": len(times[SPARKS])}
            for kind, measured in times.items():
                row[f"write, {kind} [ms]"] = _median("addBatch", measured)
                row[f"batch, {kind} [ms]"] = _median("triggerExecution", measured)
            for kind in WRITERS:
                row[f"throughput of {kind} to {SPARKS}"] = row[f"batch, {SPARKS} [ms]"] / row[f"batch, {kind} [ms]"]
            yield row


def _median(name: str, batches: list[dict[str, int]]) -> float:
    return statistics.median(durations[name] for durations in batches)


def _sink(kind: str, servers: str, topic: str) -> Sink:
    """Return the lab's sink, or a foreachBatch function that only calls Spark's own sink."""
    if kind == SPARKS:
        return sparks_own_sink(topic, servers)
    return ExactlyOnceKafkaSink(topic, topic, bootstrap_servers=servers, batch_headers=False, writers=kind)


def _run(spark: SparkSession, servers: str, source: str, kind: str, size: int) -> list[dict[str, int]]:
    """Copy the source through one sink and return Spark's durations of each full batch, in ms."""
    topic = create_topic(servers, f"sink_{uuid.uuid4().hex[:8]}", 1)
    rows = read_source(spark, servers, source, records_per_batch=size).select("key", "value")
    with tempfile.TemporaryDirectory() as checkpoint:
        query = start_query(rows, _sink(kind, servers, topic), checkpoint)
        query.awaitTermination()
    full = [batch for batch in query.recentProgress if batch.numInputRows >= size * 0.9]
    return [batch.durationMs for batch in full[1:]]
