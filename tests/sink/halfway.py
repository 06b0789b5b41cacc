"""A query whose batch stops halfway, when the first of its rows are in Kafka, until a test lets it go on."""

from __future__ import annotations

import contextlib
import functools
import json
from collections.abc import Iterator
from pathlib import Path

import pyarrow
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from labs.equipment.topics import end_offsets
from labs.equipment.waiting import eventually
from labs.evidence.auditor.audit import Audit, audit
from labs.evidence.readers.results import read_results

ROWS = 120  # of a batch
PADDING = "x" * 70_000  # more than Spark keeps back before it hands rows from Python to Python
PACE = 0.05  # seconds between two rows, until all may go on: who writes sends when the next row comes
LAST = 15  # rows of a task, which come when all may go on
HALF, GO = "half", "go"  # files: a task has begun; all may go on


class Halfway:
    """Two batches into a topic. Batch 1 has `tasks`, whose rows come slowly, and the last of them not before `go`.

    Checkpoint and signals are files in `directory`; a batch that is repeated does not stop again.
    """

    def __init__(self, spark: SparkSession, servers: str, topic: str, directory: Path, tasks: int):
        # A session of its own: what is set in the one that all tests share would be set for those that come later.
        self._spark, self._servers, self._topic, self._directory = spark.newSession(), servers, topic, directory
        self._spark.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", "1")
        self._tasks = tasks
        (directory / "source").mkdir()
        for batch in range(2):
            (directory / "source" / str(batch)).write_text("a batch\n")

    def start(self, sink) -> StreamingQuery:
        stream = self._spark.readStream.option("maxFilesPerTrigger", 1).text(str(self._directory / "source"))
        writer = stream.writeStream.option("checkpointLocation", str(self._directory / "checkpoint"))
        writer = writer.trigger(availableNow=True)
        return writer.foreachBatch(lambda _, batch: sink(self._rows(batch), batch)).start()

    def wait(self, query: StreamingQuery, tasks: int = 1) -> None:
        """Wait until so many tasks have begun, and rows are in Kafka."""

        def halfway() -> bool:
            if query.exception():
                query.awaitTermination()
            return len(list(self._directory.glob(f"{HALF}-*"))) >= tasks and self._written() > ROWS + LAST

        eventually(halfway, timeout=240)

    def go(self) -> None:
        (self._directory / GO).touch()

    def audit(self) -> Audit:
        expected = {(batch, str(number)): 1 for batch in range(2) for number in range(ROWS)}
        return audit(expected, read_results(self._servers, self._topic))

    def _written(self) -> int:
        return sum(end_offsets(self._servers, self._topic).values())

    def _rows(self, batch: int) -> DataFrame:
        make = functools.partial(_make, self._directory if batch == 1 else None, batch)
        return self._spark.range(0, ROWS, 1, self._tasks).mapInArrow(make, "value string")


def _make(directory: Path | None, batch: int, ids: Iterator[pyarrow.RecordBatch]) -> Iterator[pyarrow.RecordBatch]:
    numbers = [number for each in ids for number in each.column("id").to_pylist()]
    for left, number in zip(reversed(range(len(numbers))), numbers, strict=True):
        if directory:
            (directory / f"{HALF}-{numbers[0]}").touch()
            with contextlib.suppress(TimeoutError):
                eventually((directory / GO).exists, timeout=120 if left < LAST else PACE)
        value = json.dumps({"window_start": batch, "ip": str(number), "count": 1, "padding": PADDING})
        yield pyarrow.RecordBatch.from_arrays([pyarrow.array([value])], ["value"])
