"""A query whose batch stops halfway, when the first of its rows are in Kafka, until a test lets it go on."""

from __future__ import annotations

import functools
import json
from collections.abc import Iterator
from pathlib import Path

import pyarrow
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from labs.equipment.eventually import eventually
from labs.evidence.auditor.audit import Audit, audit
from labs.evidence.readers.results import read_results, read_visible

AT_ONCE = 50  # rows that a task hands on at once
HANDED_ON = 3  # times, before a task stops: the last one is kept back by who writes, to know whether it is the last
ROWS = 600  # of a batch
PADDING = "x" * 2000  # so that AT_ONCE rows fill what Spark hands to Python in one piece
HALF, GO = "half", "go"  # files: a task is halfway; all may go on


class Halfway:
    """Two batches into a topic. Batch 1 has `tasks`, each of which stops after its first rows until `go`.

    Checkpoint and signals are files in `directory`; a batch that is repeated does not stop again.
    """

    def __init__(self, spark: SparkSession, servers: str, topic: str, directory: Path, tasks: int):
        self._spark, self._servers, self._topic, self._directory = spark, servers, topic, directory
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
        """Wait until so many tasks have stopped, and the first rows of one are in Kafka."""

        def halfway() -> bool:
            if query.exception():
                query.awaitTermination()
            return len(list(self._directory.glob(f"{HALF}-*"))) >= tasks and self._written() > ROWS

        eventually(halfway, timeout=90)

    def go(self) -> None:
        (self._directory / GO).touch()

    def audit(self) -> Audit:
        expected = {(batch, str(number)): 1 for batch in range(2) for number in range(ROWS)}
        return audit(expected, read_results(self._servers, self._topic))

    def _written(self) -> int:
        return len(read_visible(self._servers, self._topic, "read_uncommitted"))

    def _rows(self, batch: int) -> DataFrame:
        self._spark.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", str(AT_ONCE))
        make = functools.partial(_make, self._directory if batch == 1 else None, batch)
        return self._spark.range(0, ROWS, 1, self._tasks).mapInArrow(make, "value string")


def _make(directory: Path | None, batch: int, ids: Iterator[pyarrow.RecordBatch]) -> Iterator[pyarrow.RecordBatch]:
    for n, numbers in enumerate(ids):
        if n == HANDED_ON and directory:
            (directory / f"{HALF}-{numbers.column('id')[0]}").touch()
            eventually((directory / GO).exists, timeout=120)
        values = [
            json.dumps({"window_start": batch, "ip": str(number), "count": 1, "padding": PADDING})
            for number in numbers.column("id").to_pylist()
        ]
        yield pyarrow.RecordBatch.from_arrays([pyarrow.array(values)], ["value"])
