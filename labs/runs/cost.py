"""The cost of a transaction per batch: our sink with and without one, Spark's own sink and a student's, by batch size.

    for batch in measure_cost(spark, servers, {10: 8, 1_000: 8}, own=publish):
        print(batch.sink, batch.rows, batch.milliseconds, batch.parts)

The same query, which only copies rows, writes to each sink in turn, so that the time is the sink's and not that of an
aggregation. The first batch of each query is a warm-up and left out. Limitations: Spark, Kafka and Python share this
machine, so compare only numbers of one measurement. A student's sink waits for the answer to its first row, because
there is a fault point behind it.
"""

from __future__ import annotations

import statistics
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from confluent_kafka import Producer
from pyspark.sql import DataFrame, SparkSession

from exactly_once_kafka.deadline import Deadline
from exactly_once_kafka.kafka_rows import BatchRows
from exactly_once_kafka.points import AFTER_COMMIT, BEFORE_COMMIT, BEFORE_ROWS
from exactly_once_kafka.producer import send_rows
from exactly_once_kafka.producer_options import producer_settings
from exactly_once_kafka.sink import ExactlyOnceKafkaSink
from labs.equipment.topics import create_topic
from labs.evidence.readers.results import read_committed
from labs.pipeline.log.generate import Traffic
from labs.pipeline.log.replay import replay
from labs.pipeline.query.ip_count import Sink, read_source, start_query
from labs.runs.own_sink import Publish, sink_of

OURS, WITHOUT, SPARKS, YOURS = "ours", "ours, no transaction", "Spark's own", "yours"
SIZES = {10: 10, 1_000: 10, 10_000: 8, 100_000: 4}  # rows per batch -> batches per query
BEGIN, ROWS, COMMIT = "epoch and marker", "compute and send rows", "commit"
CALLED, RETURNED = "called", "returned"
PARTS = ((BEGIN, CALLED, BEFORE_ROWS), (ROWS, BEFORE_ROWS, BEFORE_COMMIT), (COMMIT, BEFORE_COMMIT, AFTER_COMMIT))

Clock = Callable[[str, int], None]


@dataclass(frozen=True)
class BatchCost:
    """Medians over a sink's batches of one size, in milliseconds: the whole batch, the sink's call, and its parts.

    `complete` says whether a read_committed reader had every row, once.
    """

    sink: str
    rows: int
    batches: int
    whole: float  # with Spark's planning and its two checkpoint files
    milliseconds: float  # the sink's call
    parts: dict[str, float]  # empty for Spark's own sink, which has no fault points
    complete: bool


class WithoutTransaction:
    """A foreachBatch function that writes as our sink does, with one idempotent producer and no transaction."""

    def __init__(self, topic: str, bootstrap_servers: str, points: Clock):
        settings = producer_settings(topic, bootstrap_servers, {})
        del settings["transactional.id"]
        self._producer, self._topic, self._points = Producer(settings), topic, points

    def __call__(self, rows: DataFrame, batch_id: int) -> None:
        self._points(BEFORE_ROWS, batch_id)
        tags = [("batch_id", str(batch_id)), ("attempt", uuid.uuid4().hex[:8])]
        send_rows(BatchRows(rows, self._topic), self._producer, Deadline(60), tags)
        self._points(BEFORE_COMMIT, batch_id)


def measure_cost(
    spark: SparkSession,
    servers: str,
    sizes: Mapping[int, int] = SIZES,
    own: Publish | None = None,
) -> Iterator[BatchCost]:
    """Yield the cost of a batch for each size and sink. All sinks copy the same rows, one sink after the other.

    `own` is a student's function publish(rows, batch_id, kafka), as lesson 07 has it.
    """
    sinks: dict[str, Callable[[str, Clock], Sink]] = {
        OURS: lambda topic, points: ExactlyOnceKafkaSink(
            topic, topic, bootstrap_servers=servers, writers="driver", points=points
        ),
        WITHOUT: lambda topic, points: WithoutTransaction(topic, servers, points),
        SPARKS: lambda topic, _: sparks_own_sink(topic, servers),
    }
    if own:
        sinks[YOURS] = lambda topic, points: sink_of(own, topic, servers, points)
    for size, batches in sizes.items():
        source = create_topic(servers, f"rows-{size}-{uuid.uuid4().hex[:8]}", 1)
        replay(Traffic(requests=size * (batches + 1), disorder_ms=0), servers, source)
        for sink, make_sink in sinks.items():
            yield _cost(sink, size, _Run(spark, servers, source, make_sink, size))


class _Run:
    """One query through one sink: the moments of each batch, and Spark's milliseconds for it."""

    def __init__(
        self, spark: SparkSession, servers: str, source: str, make_sink: Callable[[str, Clock], Sink], size: int
    ):
        self.moments: dict[int, dict[str, float]] = {}
        topic = create_topic(servers, f"copy-{uuid.uuid4().hex[:8]}", 1)
        # As text, which a student's sink can hand to its producer.
        texts = "CAST(key AS STRING) AS key", "CAST(value AS STRING) AS value"
        rows = read_source(spark, servers, source, records_per_batch=size).selectExpr(*texts)
        with tempfile.TemporaryDirectory(prefix="labs-checkpoint-", ignore_cleanup_errors=True) as checkpoint:
            query = start_query(rows, self._timed(make_sink(topic, self._note)), checkpoint)
            try:
                query.awaitTermination()
            except KeyboardInterrupt:
                query.stop()  # or it would continue to run
                raise
        full = [each for each in query.recentProgress if each.numInputRows == size][1:]
        self.whole = {each.batchId: each.durationMs["triggerExecution"] for each in full}
        expected = sum(each.numInputRows for each in query.recentProgress)
        self.complete = len(read_committed(servers, topic)) == expected > 0

    def _note(self, point: str, batch_id: int) -> None:
        self.moments.setdefault(batch_id, {})[point] = time.perf_counter()

    def _timed(self, sink: Sink) -> Sink:
        def timed(rows: DataFrame, batch_id: int) -> None:
            self._note(CALLED, batch_id)
            sink(rows, batch_id)
            self._note(RETURNED, batch_id)

        return timed


def sparks_own_sink(topic: str, servers: str) -> Sink:
    """Return a foreachBatch function with Spark's own Kafka sink only: no headers, no fault points."""
    options = {"kafka.bootstrap.servers": servers, "topic": topic}
    return lambda rows, _: rows.write.format("kafka").options(**options).save()


def _cost(sink: str, size: int, run: _Run) -> BatchCost:
    moments = [run.moments[batch] for batch in run.whole]

    def median(start: str, end: str) -> float:
        return 1000 * statistics.median(each[end] - each[start] for each in moments)

    parts = {
        part: median(start, end) for part, start, end in PARTS if all({start, end} <= each.keys() for each in moments)
    }
    return BatchCost(
        sink,
        size,
        len(moments),
        statistics.median(run.whole.values()),
        median(CALLED, RETURNED),
        parts,
        run.complete,
    )
