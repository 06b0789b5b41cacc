"""What each micro-batch of a query did, from Spark's own progress reports."""

from __future__ import annotations

import pandas
from pyspark.sql.streaming import StreamingQuery


def batch_table(query: StreamingQuery) -> pandas.DataFrame:
    """Return one row per batch: records read, results emitted, windows' counts still in state, and the watermark.

    `watermark` is the one the batch worked with (UTC); the batch's own events move it for the next one.
    """
    rows = []
    for progress in query.recentProgress:
        [state] = progress.stateOperators
        watermark = progress.eventTime.get("watermark", "")
        rows.append(
            {
                "batch": progress.batchId,
                "records read": progress.numInputRows,
                "results emitted": state.numRowsRemoved,
                "counts in state": state.numRowsTotal,
                "watermark": "-" if watermark.startswith("1970") else watermark[11:19],
            }
        )
    return pandas.DataFrame(rows).set_index("batch")
