"""Why a query failed, in one line, told from what the real Spark makes of it."""

from __future__ import annotations

import pytest
from pyspark.errors import StreamingQueryException

from labs.pipeline.query.query_failure import why


class OwnError(RuntimeError):
    """Stands for whatever a sink raises: the pipeline knows none by name."""


@pytest.fixture
def failure(spark, tmp_path):
    """Run a query with this foreachBatch function until it fails, and return the reason that is told."""
    rows = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 1).load()
    writer = rows.writeStream.option("checkpointLocation", str(tmp_path)).trigger(availableNow=True)

    def failure(sink) -> str:
        with pytest.raises(StreamingQueryException) as failed:
            writer.foreachBatch(sink).start().awaitTermination()
        return why(failed.value)

    return failure


@pytest.mark.long
def test_what_a_sink_raises_is_the_reason(failure):
    def sink(rows, batch_id):
        try:
            raise KeyError("the first reason")
        except KeyError as error:
            raise OwnError("batch 0 failed: do this\nand more lines") from error

    assert failure(sink) == "batch 0 failed: do this"


@pytest.mark.long
def test_builtin_exception_keeps_its_name(failure):
    def sink(rows, batch_id):
        raise OSError("Caused by: nobody")

    assert failure(sink) == "OSError: Caused by: nobody"


@pytest.mark.long
def test_what_spark_says_inside_a_sink_is_the_reason(failure):
    assert failure(lambda rows, batch_id: rows.select("nonsense")).startswith("[UNRESOLVED_COLUMN.WITH_SUGGESTION]")


def test_what_no_query_raised_is_told_as_it_is():
    assert why(OwnError("plain\nwords")) == "plain"
    assert why(OwnError()) == "OwnError"
    assert why(None) == "None"


def test_what_another_part_of_spark_said_is_the_reason():
    """So it is where Spark's coordinator of states finds that a batch wrote none."""

    class SparkSays(Exception):
        def __init__(self, text, cause=None):
            super().__init__(text)
            self._cause = cause

    reason = SparkSays("[STATE_STORE_COMMIT_VALIDATION_FAILED] of batch 5.\nExpected 2 commits but got 0.")
    passed_on = SparkSays(
        "[STREAM_FAILED] Exception thrown in awaitResult: ", SparkSays("Exception thrown in awaitResult: ", reason)
    )
    assert why(passed_on) == "[STATE_STORE_COMMIT_VALIDATION_FAILED] of batch 5."
    alone = SparkSays("Exception thrown in awaitResult: ")
    assert why(alone) == "Exception thrown in awaitResult: "
