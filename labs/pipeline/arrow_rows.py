"""Rows leave Spark in Arrow batches, as they come, so that a micro-batch is never held as a whole."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import pyarrow
from pyspark.errors.exceptions.captured import unwrap_spark_exception
from pyspark.sql import DataFrame
from pyspark.sql.pandas.serializers import ArrowCollectSerializer
from pyspark.util import _load_from_socket


def arrow_batches(rows: DataFrame) -> Iterator[pyarrow.RecordBatch]:
    """Execute `rows` and yield its Arrow batches while later ones are still being computed, in no fixed order.

    It is `DataFrame.toArrow` without the list that collects everything (pyspark/sql/pandas/conversion.py).
    An error in the query is raised at the end, after the batches that preceded it: use nothing until then.
    """
    port, secret, server = rows._jdf.collectAsArrowToPython()
    finished = False
    try:
        with _load_from_socket((port, secret), ArrowCollectSerializer()) as stream:
            # The last element is not a batch: it says in which order the batches would have to be put.
            yield from (batch for batch in stream if isinstance(batch, pyarrow.RecordBatch))
            finished = True
    finally:
        # A caller who stops early has an error of his own; Spark's complaint about that is not news.
        with unwrap_spark_exception() if finished else contextlib.suppress(Exception):
            server.getResult()
