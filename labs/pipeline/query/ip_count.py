"""The query under study: how many requests did each IP make in each 5-second window of event time?

`accepts` tests whether Spark accepts a student's aggregation, and prints where its watermark is.
"""

from __future__ import annotations

import functools
import operator
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming import StreamingQuery

from labs.pipeline.query.query_failure import why
from labs.pipeline.records import (
    CLOSING_IP,
    LATENESS_MS,
    NOT_IN_AN_IP,
    RESULT_FIELDS,
    SOURCE_TOPIC,
    TIME_DIGITS,
    WINDOW_MS,
)

Sink = Callable[[DataFrame, int], None]  # what foreachBatch takes
WINDOW = f"{WINDOW_MS} milliseconds"
ALLOWED_LATENESS = f"{LATENESS_MS} milliseconds"

# Spark's source seeks again after every poll and drops what was prefetched: larger polls drop less of it,
# and a short wait reaches the end of the log sooner. Several tasks read a large batch, even from one partition. With
# the default isolation level, Spark would also count what the source's producer aborts.
SOURCE_OPTIONS = {
    "kafka.isolation.level": "read_committed",
    "kafka.max.poll.records": "20000",
    "kafka.fetch.max.wait.ms": "10",
    "maxRecordsPerPartition": "200000",
}


def read_source(
    spark: SparkSession,
    bootstrap_servers: str,
    topic: str = SOURCE_TOPIC,
    starting: str = "earliest",
    records_per_batch: int | None = None,
    **options: str,
) -> DataFrame:
    """Read the source topic as a stream of Kafka records (Spark's columns: key, value, partition, offset, …).

    `starting` is "earliest", "latest" or Spark's JSON of offsets; only a query without a checkpoint obeys it.
    """
    reader = spark.readStream.format("kafka").options(**(SOURCE_OPTIONS | options))
    reader = reader.option("kafka.bootstrap.servers", bootstrap_servers).option("subscribe", topic)
    if records_per_batch:
        reader = reader.option("maxOffsetsPerTrigger", records_per_batch)
    return reader.option("startingOffsets", starting).load()


def in_few_tasks(records: DataFrame) -> DataFrame:
    """Let one task for each core read the source, if it has more partitions than Spark has cores on this machine.

    A task takes some 20 ms of a small batch. On a cluster nothing is changed: its executors may still be starting.
    """
    context = records.sparkSession.sparkContext
    return records.coalesce(context.defaultParallelism) if (context.master or "").startswith("local[") else records


def parse_records(records: DataFrame) -> DataFrame:
    """Split each value `epoch_millis,ip` into event_time and ip; both are NULL if the value is malformed.

    The query's progress reports under `observedMetrics["source"]` how many records there were and how many
    of them were malformed. `rejected` selects the latter.
    """
    value = records.value.cast("string")
    time, ip = F.substring_index(value, ",", 1), F.substring_index(value, ",", -1)
    well_formed = _is_well_formed(value, time, ip)
    return records.select(
        "partition",
        "offset",
        "value",
        F.timestamp_millis(F.when(well_formed, time.try_cast("long"))).alias("event_time"),
        F.when(well_formed, ip).alias("ip"),
    ).observe("source", F.count(F.lit(1)).alias("records"), F.count_if(F.col("ip").isNull()).alias("malformed"))


def _is_well_formed(value: Column, time: Column, ip: Column) -> Column:
    """Tell whether a value has the form of SOURCE_PATTERN, as cheaply as Spark can; the value is `time,ip`.

    The pattern itself, by `rlike`, takes more of a long drain than all else that Spark does with a record.
    """
    one_comma = F.octet_length(time) + F.octet_length(ip) + 1 == F.octet_length(value)
    # A cast to long accepts a sign before the digits, and white space around them.
    begins, ends = (time.substr(at, 1).between("0", "9") for at in (1, -1))
    of_digits = begins & ends & time.try_cast("long").isNotNull()
    known = (F.octet_length(time) <= TIME_DIGITS) & (F.octet_length(ip) > 0) & F.is_valid_utf8(ip)
    clean = functools.reduce(operator.and_, (~ip.contains(each) for each in NOT_IN_AN_IP))
    return one_comma & of_digits & known & clean


def count_per_ip(accesses: DataFrame) -> DataFrame:
    """Count the accesses (event_time, ip) per IP and tumbling window; a window comes out once, when it is final."""
    # The condition names event_time so that Spark cannot move it before the watermark: a closing record is not counted,
    # but its time must still move the watermark.
    counted = (F.col("ip") != CLOSING_IP) | F.col("event_time").isNull()
    return (
        accesses.withWatermark("event_time", ALLOWED_LATENESS)
        .where(counted)
        .groupBy(F.window("event_time", WINDOW), "ip")
        .count()
    )


def as_records(counts: DataFrame) -> DataFrame:
    """Turn each count into a Kafka record: key = ip, value = `records.result_value`."""
    fields = (F.unix_millis("window.start"), F.col("ip"), F.col("count"))
    result = F.struct(*(field.alias(name) for name, field in zip(RESULT_FIELDS, fields, strict=True)))
    return counts.select(F.col("ip").alias("key"), F.to_json(result).alias("value"))


def count_ips(records: DataFrame) -> DataFrame:
    """Return the whole query: Kafka records in, Kafka records out."""
    return as_records(count_per_ip(parse_records(records)))


def rejected(records: DataFrame) -> DataFrame:
    """Return the malformed records as Kafka records: key = partition:offset in the source, value as it came."""
    accesses = parse_records(records).where("ip IS NULL")
    return accesses.select(F.concat_ws(":", "partition", "offset").alias("key"), "value")


def start_query(results: DataFrame, sink: Sink, checkpoint: str | Path, **trigger: Any) -> StreamingQuery:
    """Start writing `results` through the foreachBatch function `sink`, by default until the source's present end.

    `trigger` is as for Spark's `trigger`, such as `processingTime="5 seconds"`.
    """
    writer = results.writeStream.outputMode("append").option("checkpointLocation", str(checkpoint))
    return writer.foreachBatch(sink).trigger(**(trigger or {"availableNow": True})).start()


WATERMARK, AGGREGATE = "EventTimeWatermark", "Aggregate"

# Where the watermark is -> what to do about it.
WHERE = {
    "before": "there, before the counting",
    "behind": "behind the counting, where it comes too late: set it on what is counted",
    "none": "none in what you return (a DataFrame's methods change nothing in place: each returns another one)",
}


def accepts(count: Callable[[DataFrame], DataFrame], arriving: DataFrame) -> bool:
    """Run `count(arriving)` in append mode, without a sink; print where its watermark is, and what Spark says."""
    try:
        counts = count(arriving)
        if not isinstance(counts, DataFrame):
            raise TypeError(f"it returned {counts!r}, and no DataFrame: end it with `return`")
        print("Watermark:", WHERE[watermark_in(counts)])
        with tempfile.TemporaryDirectory(prefix="labs-accepts-") as checkpoint:
            query = counts.writeStream.format("noop").outputMode("append").option("checkpointLocation", checkpoint)
            query.trigger(availableNow=True).start().awaitTermination()
    except Exception as error:
        print(f"Refused: {type(error).__name__}: {_said_by(error)}")
        return False
    print("Accepted.")
    return True


def watermark_in(counts: DataFrame) -> str:
    """Tell whether Spark's plan has a watermark "before" its last aggregation, "behind" it, or "none"."""
    frame: Any = counts
    plan = frame._jdf.queryExecution().analyzed().toString()  # the last step comes first
    if WATERMARK not in plan:
        return "none"
    return "before" if AGGREGATE in plan.partition(WATERMARK)[0] else "behind"


def _said_by(error: Exception) -> str:
    return why(error).partition(" SQLSTATE")[0]
