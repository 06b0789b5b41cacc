"""Whether Spark takes a student's aggregation, and what its watermark has to do with that."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from typing import Any

from pyspark.sql import DataFrame

from labs.pipeline.query.query_failure import why

WATERMARK, AGGREGATE = "EventTimeWatermark", "Aggregate"

# Where the watermark is -> what to do about it.
WHERE = {
    "before": "there, before the counting",
    "behind": "behind the counting, where it comes too late: set it on what is counted",
    "none": "none in what you return (a DataFrame's methods change nothing in place: each returns another one)",
}


def accepts(count: Callable[[DataFrame], DataFrame], arriving: DataFrame) -> bool:
    """Run `count(arriving)` in append mode, into nothing; print where its watermark is, and what Spark says."""
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
