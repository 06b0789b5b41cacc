"""What the sinks outside of Kafka have in common: each keeps a batch marker of its own, next to the results."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator

from pyspark.sql import DataFrame

from labs.pipeline.arrow_rows import arrow_batches
from labs.pipeline.kafka_rows import check_columns, kafka_rows
from labs.pipeline.sink_errors import SinkRefused


class ForeignSinkRefused(SinkRefused):
    """Publishing this batch could lose or double rows, and no Kafka is involved."""

    no_marker = "no marker: nothing was ever committed under this name"

    def __init__(self, name: str, batch_id: int, query_id: str, found: str):
        RuntimeError.__init__(
            self,
            f"sink {name!r} refuses batch {batch_id} of query {query_id}.\n"
            f"  found:    {found}\n"
            f"  expected: batch {batch_id - 1 if batch_id else 'none'} of this query, or this batch itself\n"
            "  causes:   the checkpoint was deleted, or an older copy of it restored; another query writes to the same "
            "place; or the results were deleted or restored without the checkpoint\n"
            "  to do:    restore checkpoint and results to the same moment, or give a new query a new place",
        )


def query_id_of(rows: DataFrame) -> str:
    """Return the id of the streaming query that a batch belongs to: the same for as long as its checkpoint lives."""
    return rows.sparkSession.sparkContext.getLocalProperty("sql.streaming.queryId") or ""


def values_of(rows: DataFrame) -> Iterator[str]:
    """Yield the `value` column, row by row as Spark computes them: the same rows as for the Kafka sinks."""
    check_columns(rows, topic="any")
    for _, value, *_ in kafka_rows(arrow_batches(rows), topic="any"):
        yield value.decode() if isinstance(value, bytes) else value


def drain(rows: DataFrame) -> None:
    """Execute the batch to nowhere: a batch that is done must still move Spark's state on."""
    rows.write.format("noop").mode("overwrite").save()


def chunks(values: Iterable[str], size: int) -> Iterator[list[str]]:
    """Yield lists of up to `size` values."""
    values = iter(values)
    while chunk := list(itertools.islice(values, size)):
        yield chunk
