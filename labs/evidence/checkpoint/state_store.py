"""Reads a query's state store: the counts in flight, which the query has counted and not yet published.

Guarantee: Spark itself reads, through its state data source, the rows that the query's next batch would start from.
Limitations: Spark reads the state of committed batches only, and keeps that of the last
`spark.sql.streaming.minBatchesToRetain` (100).
"""

from __future__ import annotations

from pathlib import Path
from typing import cast

import pandas as pd
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from labs.evidence.checkpoint.checkpoint import CheckpointError, read_checkpoint

# A task finds that a file is missing, and PySpark translates only some errors of tasks into its own.
UNREADABLE = (PySparkException, Py4JJavaError)


def counts_in_flight(spark: SparkSession, checkpoint: str | Path, batch_id: int | None = None) -> pd.DataFrame:
    """Return the counts in the state of the IP count after a batch, by default after the last committed one.

    One row per window_start (epoch millis) and ip, with the count so far and its state partition.
    Raises CheckpointError if there is no such state.
    """
    rows = read_state(spark, checkpoint, batch_id)
    if not {"window", "ip"} <= set(cast(StructType, rows.schema["key"].dataType).names):
        raise CheckpointError(
            f"{checkpoint} holds the state of another query than the IP count: {rows.schema['key'].simpleString()}, "
            f"{rows.schema['value'].simpleString()}; use read_state, which returns the state of any query"
        )
    window_start = F.unix_millis("key.window.start").alias("window_start")
    counts = rows.select(window_start, "key.ip", "value.count", F.col("partition_id").alias("partition"))
    try:
        return counts.toArrow().to_pandas().sort_values(["window_start", "ip"], ignore_index=True)
    except UNREADABLE as error:
        raise _unreadable(checkpoint, batch_id, error) from None


def read_state(spark: SparkSession, checkpoint: str | Path, batch_id: int | None = None) -> DataFrame:
    """Return the state of a query's first stateful operator after a batch, in the columns key, value, partition_id.

    Raises CheckpointError if there is no such state.
    """
    found = read_checkpoint(checkpoint)
    if found.last_committed is None:
        raise CheckpointError(f"{checkpoint}: no batch is committed, and Spark reads the state of committed ones only")
    if not found.partitions:
        raise CheckpointError(f"{checkpoint}: there is no stateful operator, since the query keeps no state")
    last = found.last_committed.batch_id
    batch_id = last if batch_id is None else batch_id
    if not 0 <= batch_id <= last:
        raise CheckpointError(f"{checkpoint}: batch {batch_id} is not committed; the last committed one is {last}")
    try:
        return spark.read.format("statestore").option("batchId", batch_id).load(str(found.path))
    except UNREADABLE as error:
        raise _unreadable(checkpoint, batch_id, error) from None


def _unreadable(checkpoint: str | Path, batch_id: int | None, error: Exception) -> CheckpointError:
    which = "" if batch_id is None else f" of batch {batch_id}"
    reason = next((line for line in str(error).splitlines() if "[" in line), str(error))[:300]
    return CheckpointError(
        f"{checkpoint}: Spark cannot read the state{which}, which is deleted after 100 batches: {reason}"
    )
