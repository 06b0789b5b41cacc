"""What Spark thinks of a student's aggregation, and whether its watermark is kept, forgotten, or too late."""

from __future__ import annotations

import pytest
from pyspark.sql import functions as F

from labs.pipeline.query.ip_count import accepts

LATE = ("event_time", "5 seconds")


def per_window(rows):
    return rows.groupBy(F.window("event_time", "5 seconds"), "ip").count()


def discarded(rows):
    rows.withWatermark(*LATE)
    return per_window(rows)


def behind(rows):
    counted = per_window(rows).withColumn("event_time", F.col("window.start"))
    return counted.withWatermark(*LATE)


def misspelt(rows):
    return per_window(rows.withWatermark("event_tim", "5 seconds"))


@pytest.fixture
def arriving(spark):
    rows = spark.readStream.format("rate-micro-batch").options(rowsPerBatch=1).load()
    return rows.select(F.col("timestamp").alias("event_time"), F.col("value").cast("string").alias("ip"))


@pytest.mark.long
@pytest.mark.parametrize(
    ("count", "accepted", "said"),
    [
        (lambda rows: per_window(rows.withWatermark(*LATE)), True, ["there, before the counting", "Accepted."]),
        (per_window, False, ["none in what you return", "Refused: AnalysisException: ", "without watermark"]),
        (discarded, False, ["none in what you return", "each returns another one"]),
        (behind, False, ["behind the counting", "Refused: "]),
        (misspelt, False, ["Refused: AnalysisException: ", "event_tim"]),
        (lambda rows: per_window(rows.withwatermark(*LATE)), False, ["Refused: ", "withwatermark"]),
        (lambda rows: None, False, ["Refused: TypeError: it returned None"]),
    ],
    ids=["kept", "missing", "discarded", "behind", "misspelt", "no such method", "returns nothing"],
)
def test_student_is_told_where_the_watermark_is_and_what_spark_says(arriving, capsys, count, accepted, said):
    assert accepts(count, arriving) is accepted
    printed = capsys.readouterr().out
    assert [each for each in said if each not in printed] == [], printed
    assert len(printed.splitlines()) <= 2, "one line each"
