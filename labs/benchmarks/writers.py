"""The sink with one, two and four writers on the executors, beside Spark's own sink; and the cost of its parts.

docs/many-writers.md calculates with the parts: the rows that one core encodes, and the duration of a transaction.
"""

from __future__ import annotations

import statistics
import tempfile
import time
import uuid
from collections.abc import Iterator, Sequence

import pyarrow
from pyspark.sql import DataFrame, SparkSession

from exactly_once_kafka.deadline import Deadline
from exactly_once_kafka.kafka_client.open_transaction_repair import OpenTransactionRepair
from exactly_once_kafka.kafka_client.partition_writer import EncodedBatch, PartitionWriter, send
from exactly_once_kafka.kafka_client.record_batch import ProducerId, cut, encode
from exactly_once_kafka.kafka_client.transaction_coordinator import Coordinator
from exactly_once_kafka.sink import ExactlyOnceKafkaSink
from labs.equipment.broker import Broker
from labs.equipment.spark import spark_session
from labs.equipment.topics import create_topic
from labs.equipment.waiting import eventually
from labs.runs.cost import sparks_own_sink

WRITERS = (1, 2, 4)
PARTITIONS = (1, 16, 64, 256)
ROWS, VALUE = 1_000_000, "repeat('x', 60)"  # rows of a batch; what a row has besides its number
BATCHES = 3  # of a run, the first of which warms up
TRANSACTIONS = 21  # the first of which warms up
SPARKS = "Spark's own sink"
WAIT = Deadline(600)


def measure(rounds: int = 4, rows: int = ROWS) -> Iterator[tuple[str, float, str]]:
    """Yield (what, median, unit). A batch has `rows`, over as many partitions as there are writers; runs alternate."""
    with Broker(jvm_options=()) as broker:
        servers = broker.bootstrap_servers
        spark = spark_session(quick_start=False, spark_master=f"local[{max(WRITERS)}]")
        runs = [(kind, writers) for writers in WRITERS for kind in (SPARKS, "executors")]
        measured: dict[tuple[str, int], list[float]] = {run: [] for run in runs}
        for _ in range(rounds):
            for run in runs:
                measured[run] += _batches(spark, servers, *run, rows)
        for (kind, writers), seconds in measured.items():
            yield f"{kind}, writers: {writers}", rows / statistics.median(seconds), "rows/s"
        yield "encoded by one core", _encoded(), "rows/s of CPU"
        for count in PARTITIONS:
            cycles, ends = zip(*_transactions(servers, count), strict=True)
            yield f"a transaction with one record in each of {count} partitions", _milliseconds(cycles), "ms"
            yield f"of it from EndTxn to the answer, {count} partitions", _milliseconds(ends), "ms"


def _milliseconds(seconds: Sequence[float]) -> float:
    return statistics.median(seconds) * 1000


def _batches(spark: SparkSession, servers: str, kind: str, writers: int, rows: int) -> list[float]:
    """Return the seconds that each batch after the first took to compute, write and commit."""
    topic = create_topic(servers, f"to-{uuid.uuid4().hex[:8]}", writers)
    stream = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", rows)
    numbers = stream.option("numPartitions", writers).load()
    values = numbers.selectExpr(f"concat(string(value), {VALUE}) AS value")
    ours = ExactlyOnceKafkaSink(
        topic, topic, bootstrap_servers=servers, batch_headers=False, writers="executors", driver_rows=0
    )
    sink = sparks_own_sink(topic, servers) if kind == SPARKS else ours
    checkpoint = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
    writer = values.writeStream.option("checkpointLocation", checkpoint.name)

    def publish(batch: DataFrame, number: int) -> None:
        sink(batch, number)

    query = writer.foreachBatch(publish).start()
    try:
        eventually(lambda: query.exception() or len(query.recentProgress) >= BATCHES, timeout=600)
        if query.exception():
            query.awaitTermination()
        return [batch.durationMs["addBatch"] / 1000 for batch in query.recentProgress[1:BATCHES]]
    finally:
        query.stop()
        checkpoint.cleanup()


def _encoded(rows: int = 200_000, times: int = 5) -> float:
    """Return how many rows per second one core encodes into record batches."""
    values = pyarrow.array([f"{number}{'x' * 60}".encode() for number in range(rows)])
    batch, best = pyarrow.RecordBatch.from_arrays([values], ["value"]), float("inf")
    for _ in range(times):
        began = time.process_time()
        for piece in cut(batch):
            encode(piece, ProducerId(1, 0), 0, 0)
        best = min(best, time.process_time() - began)
    return rows / best


def _transactions(servers: str, partitions: int) -> list[tuple[float, float]]:
    """Return the seconds of whole transactions, one after the other, and of their EndTxn requests alone.

    Each has one record in each partition. A transaction begins when the markers of the one before are written.
    """
    name = f"transactions-{uuid.uuid4().hex[:8]}"
    topic, seconds = create_topic(servers, name, partitions), []
    coordinator = Coordinator(name, {"bootstrap_servers": servers}, topic, 60_000)
    coordinator.partitions(topic, WAIT)
    producer = OpenTransactionRepair(coordinator, topic).fence(WAIT)
    for _ in range(TRANSACTIONS):
        began = time.perf_counter()
        row = pyarrow.RecordBatch.from_pylist([{"value": b"x"}])
        content = encode(row, producer, 0, int(time.time() * 1000))
        writers = [PartitionWriter(coordinator.cluster, name, topic, number) for number in range(partitions)]
        for writer in writers:
            writer.add(EncodedBatch(content, 1))
        send(coordinator.cluster, writers, WAIT.seconds, lambda: None)
        written = time.perf_counter()
        producer = coordinator.end(producer, True, WAIT)
        ended = time.perf_counter()
        seconds.append((ended - began, ended - written))
    return seconds[1:]
