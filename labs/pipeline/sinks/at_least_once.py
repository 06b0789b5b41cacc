"""The at-least-once sink: Spark's own Kafka writer, which does not recognise a batch that it wrote before.

Guarantee: Kafka acknowledges every row of a batch before the batch counts as done.
Limitations: a batch that failed, or that ended before Spark wrote it to its commit log, is written again in full.
"""

from __future__ import annotations

import uuid

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from exactly_once_kafka.points import Points, pass_by
from labs.pipeline.records import SINK_TOPIC


class AtLeastOnceKafkaSink:
    """A foreachBatch function that writes each micro-batch with Spark's Kafka writer.

    `points` is called at its fault points. With `halves`, it writes a batch in two halves, with the point `mid_rows`
    between them: Spark's writer itself has no point at which the same rows are written every time.
    `options` are Kafka producer settings by their own names, with `_` for `.`.
    """

    def __init__(
        self,
        topic: str = SINK_TOPIC,
        *,
        bootstrap_servers: str,
        halves: bool = False,
        points: Points = pass_by,
        **options: str,
    ):
        self.topic, self.halves, self.points = topic, halves, points
        self._options = {f"kafka.{key.replace('_', '.')}": str(value) for key, value in options.items()}
        self._options |= {"kafka.bootstrap.servers": bootstrap_servers, "topic": topic}

    def __call__(self, rows: DataFrame, batch_id: int) -> None:
        self.points("before_rows", batch_id)
        rows = rows.withColumn("headers", _headers(batch_id))
        if self.halves:
            self._write_in_halves(rows, batch_id)
        else:
            self._write(rows)
        self.points("after_commit", batch_id)
        self.points("before_checkpoint", batch_id)

    def _write(self, rows: DataFrame) -> None:
        rows.write.format("kafka").options(**self._options).save()

    def _write_in_halves(self, rows: DataFrame, batch_id: int) -> None:
        # One task, so that a lost acknowledgement always covers the same rows.
        rows = rows.coalesce(1).withColumn("half", F.monotonically_increasing_id() % 2).persist()
        try:
            self._write(rows.where("half = 0").drop("half"))
            self.points("mid_rows", batch_id)
            self._write(rows.where("half = 1").drop("half"))
        finally:
            rows.unpersist()


def _headers(batch_id: int) -> Column:
    """Say in each record which batch it belongs to and which attempt at that batch wrote it."""
    fields = {"batch_id": str(batch_id), "attempt": uuid.uuid4().hex[:8]}
    pairs = [F.struct(F.lit(k).alias("key"), F.lit(v).cast("binary").alias("value")) for k, v in fields.items()]
    return F.array(*pairs)
