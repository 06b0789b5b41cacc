"""What exactly once costs a batch: the same query into Spark's own Kafka sink and into ours, in turn."""

from __future__ import annotations

import statistics
import tempfile
import uuid
from collections.abc import Iterator

from labs.equipment import Broker, create_topic, spark_session
from labs.pipeline import AtLeastOnceKafkaSink, ExactlyOnceKafkaSink, read_source, replay, start_query
from labs.pipeline.generate import Traffic

# rows per batch -> batches per run
SIZES = {100: 40, 10_000: 20, 1_000_000: 3}


def measure(rounds: int = 4) -> Iterator[dict[str, float]]:
    """Yield one row per batch size: median milliseconds of a batch in each sink, their difference and ratio.

    A batch's time is Spark's own `addBatch`: computing the rows, writing and committing them. The first batch
    of each run, which warms up, is left out. Runs alternate between the sinks.
    """
    with Broker(jvm_options=()) as broker:
        servers = broker.bootstrap_servers
        spark = spark_session(quick_start=False)
        for size, batches in SIZES.items():
            source = create_topic(servers, f"rows_{size}", 2)
            replay(Traffic(requests=size * (batches + 1), disorder_ms=0), servers, source)
            times: dict[type, list[float]] = {AtLeastOnceKafkaSink: [], ExactlyOnceKafkaSink: []}
            for _ in range(rounds):
                for kind, measured in times.items():
                    measured += _run(spark, servers, source, kind, size)
            sparks, ours = map(statistics.median, times.values())
            yield {
                "rows per batch": size,
                "batches": len(times[ExactlyOnceKafkaSink]),
                "Spark's sink [ms]": sparks,
                "exactly once [ms]": ours,
                "added [ms]": ours - sparks,
                "throughput ratio": sparks / ours,
            }


def _run(spark, servers: str, source: str, kind: type, size: int) -> list[float]:
    topic = create_topic(servers, f"sink_{uuid.uuid4().hex[:8]}", 1)
    if kind is ExactlyOnceKafkaSink:
        sink = ExactlyOnceKafkaSink(topic, topic, bootstrap_servers=servers, batch_headers=False)
    else:
        options = {"kafka.bootstrap.servers": servers, "topic": topic}

        def sink(rows, batch_id: int) -> None:
            rows.write.format("kafka").options(**options).save()

    rows = read_source(spark, servers, source, records_per_batch=size).select("key", "value")
    query = start_query(rows, sink, tempfile.mkdtemp())
    query.awaitTermination()
    full = [batch for batch in query.recentProgress if batch.numInputRows >= size * 0.9]
    return [batch.durationMs["addBatch"] for batch in full[1:]]
