"""Do once what every lesson does, so that the JVMs record the classes that they load for it. See class_archive."""

from __future__ import annotations

import tempfile
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from labs.equipment.broker import Broker
from labs.equipment.doctor import produce
from labs.equipment.spark import spark_session
from labs.equipment.topics import create_topic

TOPIC, RESULTS = "training", "results"


def train() -> None:
    """Run a broker, and a stateful query from Kafka to Kafka; end both JVMs cleanly: at their end they write."""
    with Broker() as broker:
        servers = broker.bootstrap_servers
        for topic in (TOPIC, RESULTS):
            create_topic(servers, topic, partitions=1)
        produce(servers, TOPIC, {b"%d" % n for n in range(100)})
        spark = spark_session()
        for _ in range(2):
            count(spark, servers)
        gateway: Any = spark.sparkContext._gateway
        spark.stop()
        gateway.shutdown()
        gateway.proc.stdin.close()
        gateway.proc.wait()
        broker.stop()


def count(spark: SparkSession, servers: str) -> None:
    """Count in windows of event time, and write each batch to Kafka, to Spark's noop sink, and to Python."""
    options = {"kafka.bootstrap.servers": servers, "subscribe": TOPIC, "startingOffsets": "earliest"}
    records = spark.readStream.format("kafka").options(**options, maxOffsetsPerTrigger=30).load()
    parsed = records.select(
        F.timestamp_millis(F.col("value").cast("string").cast("long") * 1000).alias("time"),
        F.split(F.col("value").cast("string"), ",")[0].alias("ip"),
    )
    windows = parsed.withWatermark("time", "5 seconds").groupBy(F.window("time", "5 seconds"), "ip").count()

    def write(rows: DataFrame, batch_id: int) -> None:
        values = rows.select(F.to_json(F.struct("window", "ip", "count")).alias("value"))
        values.write.format("kafka").options(**{"kafka.bootstrap.servers": servers, "topic": RESULTS}).save()
        values.write.format("noop").mode("overwrite").save()
        values.toArrow()

    with tempfile.TemporaryDirectory(prefix="labs-training-") as checkpoint:
        query = windows.writeStream.outputMode("append").foreachBatch(write)
        query.option("checkpointLocation", checkpoint).trigger(availableNow=True).start().awaitTermination()


if __name__ == "__main__":
    train()
