"""What Real-Time Mode gains and exactly once costs: the time from a record's sending to its result's arrival.

One query runs in three ways, in turn, on the same broker: micro-batches with Spark's own Kafka sink, Real-Time Mode
with the same sink, and Real-Time Mode with the exactly-once sink.

Limitations: records, reader, Spark and broker share this machine, so their work is in the numbers.
"""

from __future__ import annotations

import statistics
import tempfile
import threading
import time
import uuid
from collections.abc import Iterator
from contextlib import closing
from typing import Any

from confluent_kafka import Consumer, Producer, TopicPartition
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming import StreamingQuery

from labs.equipment.broker import Broker
from labs.equipment.spark import spark_session
from labs.equipment.topics import create_topic
from labs.equipment.waiting import eventually
from labs.pipeline.query.ip_count import read_source
from labs.pipeline.records import SOURCE_TOPIC
from labs.pipeline.sinks.real_time_sink import RealTimeKafkaSink, start_real_time, start_sparks_own

RATE = 100  # records per second
EPOCH = "5 seconds"  # the shortest that Spark allows unless told otherwise
MICRO_BATCH, SPARKS, OURS = "micro-batch, Spark's sink", "real time, Spark's sink", "real time, exactly once"


def measure(seconds: int = 30) -> Iterator[tuple[str, float, str]]:
    """Yield (what, value, unit): p50, p95 and p99 for each way to run it, after a warm-up."""
    with Broker(jvm_options=()) as broker:
        spark = spark_session(quick_start=False)
        for way in (MICRO_BATCH, SPARKS, OURS):
            latencies = _latencies(spark, broker.bootstrap_servers, way, seconds)
            quantiles = statistics.quantiles(latencies, n=100, method="inclusive")
            for percent in (50, 95, 99):
                yield f"{way}: p{percent} of {len(latencies)}", quantiles[percent - 1], "ms"


def _latencies(spark: SparkSession, servers: str, way: str, seconds: int) -> list[float]:
    """Return the latency in milliseconds of each record that was sent in `seconds` seconds, after a warm-up."""
    name = uuid.uuid4().hex[:8]
    source, topic = create_topic(servers, f"{SOURCE_TOPIC}-{name}", 1), create_topic(servers, f"out-{name}", 1)
    reader = _Reader(servers, topic)
    checkpoint = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
    query = _start(way, read_source(spark, servers, source), servers, topic, checkpoint.name)
    producer = Producer({"bootstrap.servers": servers, "linger.ms": 0})
    try:
        warm = _send(producer, source, 10)  # warms up: two epochs
        eventually(lambda: reader.milliseconds, 60)
        sent = _send(producer, source, seconds)
        eventually(lambda: len(reader.milliseconds) >= warm + sent, 60)
    finally:
        query.stop()
        checkpoint.cleanup()
        reader.close()
    return reader.milliseconds[warm:]


def _start(way: str, records: DataFrame, servers: str, topic: str, checkpoint: str) -> StreamingQuery:
    rows = records.selectExpr("key", "value", "struct(topic, partition, offset) AS source")
    if way == SPARKS:
        return start_sparks_own(rows, servers, topic, checkpoint, EPOCH)
    if way == OURS:
        return start_real_time(rows, RealTimeKafkaSink(topic, topic, bootstrap_servers=servers), checkpoint, EPOCH)
    writer = rows.select("key", "value").writeStream.format("kafka").option("topic", topic)
    writer = writer.option("kafka.bootstrap.servers", servers).option("checkpointLocation", checkpoint)
    return writer.trigger(processingTime="0 seconds").start()


def _send(producer: Producer, topic: str, seconds: float) -> int:
    """Send records that contain their sending time, at a steady rate, and return their number."""
    over, pause, sent = time.monotonic() + seconds, threading.Event(), 0
    while time.monotonic() < over:
        producer.produce(topic, repr(time.monotonic()))
        producer.poll(0)
        sent += 1
        pause.wait(1 / RATE)
    producer.flush(30)
    return sent


class _Reader:
    """Reads committed records, and notes how long ago each was sent."""

    def __init__(self, servers: str, topic: str):
        self.milliseconds: list[float] = []
        self._over = threading.Event()
        settings: dict[str, Any] = {
            "bootstrap.servers": servers,
            "group.id": topic,
            "isolation.level": "read_committed",
        }
        settings |= {"enable.auto.commit": False, "auto.offset.reset": "earliest", "fetch.wait.max.ms": 5}
        self._consumer = Consumer(settings)
        self._consumer.assign([TopicPartition(topic, 0, 0)])
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def _read(self) -> None:
        with closing(self._consumer):
            while not self._over.is_set():
                message = self._consumer.poll(0.1)
                if message is not None and not message.error():
                    self.milliseconds.append((time.monotonic() - float(message.value() or b"0")) * 1000)

    def close(self) -> None:
        self._over.set()
        self._thread.join()
