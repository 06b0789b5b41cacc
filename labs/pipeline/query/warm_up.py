"""Warm up a session: run without Kafka what the first batches of the count will run, so that they are faster.

A JVM's first micro-batch takes seconds, most of them to load classes and compile code. Guarantee: it opens no
connection, and writes only to a temporary directory of its own. Limitations: code that needs a real Kafka, such as the
source's request for offsets, is only loaded, not run.
"""

from __future__ import annotations

import functools
import tempfile
from collections.abc import Callable, Iterator
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from exactly_once_kafka.kafka_rows import BatchRows, kafka_rows
from exactly_once_kafka.query import RunningQuery
from labs.pipeline.query.ip_count import count_ips, start_query

ROUNDS = 3  # each starts the query again from its checkpoint, as a restart does
# The classes of the Kafka source, in the order in which it uses them.
KAFKA_CLASSES = (
    "org.apache.spark.sql.kafka010.KafkaMicroBatchStream",
    "org.apache.spark.sql.kafka010.KafkaOffsetReaderAdmin",
    "org.apache.kafka.clients.admin.KafkaAdminClient",
    "org.apache.spark.sql.kafka010.consumer.KafkaDataConsumer",
    "org.apache.kafka.clients.consumer.KafkaConsumer",
    "org.apache.kafka.clients.consumer.internals.ClassicKafkaConsumer",
)


def warm_up(spark: SparkSession, enough: Callable[[], bool] = lambda: False) -> None:
    """Run the query on made-up records, and load the classes of the Kafka source; stop when `enough()` is true."""
    for step in _steps(spark):
        if enough():
            return
        step()


def _steps(spark: SparkSession) -> Iterator[Callable[[], object]]:
    with tempfile.TemporaryDirectory(prefix="labs-warm-") as checkpoint:
        for _ in range(ROUNDS):
            yield lambda: _run_once(spark, checkpoint)
    for name in KAFKA_CLASSES:
        yield functools.partial(_load, spark, name)


def load_kafka_classes(spark: SparkSession) -> None:
    """Load the classes of the Kafka source; return when they are initialised, by this call or by a running query."""
    for name in KAFKA_CLASSES:
        _load(spark, name)


def _load(spark: SparkSession, name: str) -> None:
    jvm: Any = spark._jvm
    jvm.java.lang.Class.forName(name)


def _run_once(spark: SparkSession, checkpoint: str) -> None:
    query = start_query(count_ips(_made_up(spark)), _as_a_sink, checkpoint)
    query.awaitTermination()


def _made_up(spark: SparkSession) -> DataFrame:
    """Return a stream with Spark's columns of Kafka records: 100 records a batch, each batch 10 s after the last."""
    source = spark.readStream.format("rate-micro-batch").options(rowsPerBatch=100, advanceMillisPerBatch=10_000)
    value = F.concat_ws(",", F.unix_millis("timestamp"), F.concat(F.lit("10.0.0."), F.col("value") % 100))
    return source.load().select(
        F.lit(None).cast("binary").alias("key"),
        value.cast("binary").alias("value"),
        F.lit("none").alias("topic"),
        F.lit(0).alias("partition"),
        F.col("value").alias("offset"),
        F.col("timestamp"),
        F.lit(0).alias("timestampType"),
    )


def _as_a_sink(rows: DataFrame, batch_id: int) -> None:
    """Do what the exactly-once sink does with a batch, without Kafka."""
    query = RunningQuery(rows)
    query.plan(batch_id)
    query.stopped()
    for batch in kafka_rows(BatchRows(rows, "none"), "none"):
        list(batch)
