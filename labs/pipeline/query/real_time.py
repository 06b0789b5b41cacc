"""A query for Spark's Real-Time Mode: each access of the log becomes a result of its own, with count 1.

Real-Time Mode of Spark 4.2 has no state, so the query counts nothing over time.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.streaming import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamWriter

from labs.pipeline.records import RESULT_FIELDS

if TYPE_CHECKING:
    from pyspark.sql._typing import SupportsProcess

SHORTEST = "spark.sql.streaming.realTimeMode.minBatchDuration"  # milliseconds; 5,000 unless set


def report_each(records: DataFrame) -> DataFrame:
    """Turn source records `epoch_millis,ip` into results: key, value, and `source`, the record's place."""
    fields = F.split(records.value.cast("string"), ",")
    result = (fields[0].cast("long"), fields[1], F.lit(1))
    value = F.to_json(F.struct(*(each.alias(name) for name, each in zip(RESULT_FIELDS, result, strict=True))))
    source = F.struct("topic", "partition", "offset").alias("source")
    return records.select(fields[1].alias("key"), value.alias("value"), source)


def start_real_time(
    rows: DataFrame, sink: SupportsProcess, checkpoint: str, epoch: str = "5 seconds"
) -> StreamingQuery:
    """Start writing `rows` through `sink`, an object for `foreach`, in Real-Time Mode with epochs of this length."""
    return real_time_writer(rows, checkpoint, epoch).foreach(sink).start()


def start_sparks_own(
    rows: DataFrame, bootstrap_servers: str, topic: str, checkpoint: str, epoch: str = "5 seconds"
) -> StreamingQuery:
    """Start writing `rows` through Spark's own Kafka sink, in Real-Time Mode with epochs of this length."""
    writer = real_time_writer(rows.select("key", "value"), checkpoint, epoch).format("kafka").option("topic", topic)
    return writer.option("kafka.bootstrap.servers", bootstrap_servers).start()


def real_time_writer(rows: DataFrame, checkpoint: str, epoch: str) -> DataStreamWriter:
    """Return a writer of `rows` in Real-Time Mode, without a sink."""
    writer = rows.writeStream.outputMode("update").option("checkpointLocation", checkpoint)
    return writer.trigger(realTime=epoch)  # type: ignore[call-overload]  # pyspark's overloads do not have it yet
