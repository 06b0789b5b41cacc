"""The driver's memory, and the bytes that it sends, while the executors write a large batch.

The executors are processes of their own (Spark's `local-cluster` mode), so that only the driver uses the driver's JVM.
Memory is the maximum of the resident memory, sampled ten times a second.

Limitations: a JVM does not give memory back, so that its numbers never fall from one batch to the next.
"""

from __future__ import annotations

import os
import tempfile
import threading
import uuid
from collections.abc import Iterator
from unittest.mock import patch

import psutil
from kafka.protocol.producer.produce import ProduceRequest
from pyspark.sql import DataFrame, SparkSession

from exactly_once_kafka.kafka_client.cluster import Cluster
from exactly_once_kafka.sink import ExactlyOnceKafkaSink
from labs.equipment.broker import Broker
from labs.equipment.spark import spark_session
from labs.equipment.topics import create_topic
from labs.equipment.waiting import eventually

MASTER = "local-cluster[2,1,1024]"
PARTITIONS, VALUE = 4, "repeat('x', 60)"
SMALL = 1_000  # rows of the first batch, which warms the JVM up
EVERY = 0.1  # seconds


def measure(large: int = 10_000_000) -> Iterator[tuple[str, float, str]]:
    """Yield (what, value, unit) for a batch of few rows and one of `large` rows, each in a topic of its own."""
    with Broker(jvm_options=()) as broker:
        spark = spark_session(quick_start=False, spark_master=MASTER)
        for rows in (SMALL, large):
            peaks, sent = _batch(spark, broker.bootstrap_servers, rows)
            for process, resident in peaks.items():
                yield f"{rows:,} rows in one batch: {process} of the driver, at most", resident / 1e6, "MB"
            yield f"{rows:,} rows in one batch: record batches that the driver sent, its marker", sent, "bytes"


def _batch(spark: SparkSession, servers: str, rows: int) -> tuple[dict[str, int], int]:
    """Publish a batch of `rows` rows; return the largest memory of each process, and the bytes of batches sent."""
    topic, sent = create_topic(servers, f"to-{uuid.uuid4().hex[:8]}", PARTITIONS), [0]
    stream = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", rows)
    numbers = stream.option("numPartitions", PARTITIONS).load().where(f"value < {rows}")
    values = numbers.selectExpr("string(value % 1000) AS key", f"concat(string(value), {VALUE}) AS value")
    send = Cluster.send

    def noting(cluster: Cluster, request: object, node: int | str) -> object:
        if isinstance(request, ProduceRequest):
            sent[0] += sum(len(each.records) for of in request.topic_data for each in of.partition_data)
        return send(cluster, request, node)

    with patch.object(Cluster, "send", noting), _Watch(spark) as watch:
        sink = ExactlyOnceKafkaSink(topic, topic, bootstrap_servers=servers, writers="executors", driver_rows=0)

        def publish(batch: DataFrame, number: int) -> None:
            if number == 0:
                sink(batch, number)

        checkpoint = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
        query = values.writeStream.option("checkpointLocation", checkpoint.name).foreachBatch(publish).start()
        try:
            eventually(lambda: query.exception() or query.lastProgress, timeout=3600)
            if query.exception():
                query.awaitTermination()
        finally:
            query.stop()
            checkpoint.cleanup()
    return watch.peaks, sent[0]


class _Watch:
    """Samples the memory of the driver's two processes while it is open."""

    def __init__(self, spark: SparkSession):
        java = int(spark.sparkContext._jvm.java.lang.ProcessHandle.current().pid())  # type: ignore[union-attr]
        self._processes = {"Python": psutil.Process(os.getpid()), "JVM": psutil.Process(java)}
        self.peaks = dict.fromkeys(self._processes, 0)
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._look, daemon=True)

    def _look(self) -> None:
        while not self._ended.wait(EVERY):
            for name, process in self._processes.items():
                self.peaks[name] = max(self.peaks[name], process.memory_info().rss)

    def __enter__(self) -> _Watch:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()
