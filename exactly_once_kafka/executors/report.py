"""The reports of tasks on executors, and the driver's check of them: the driver may commit only if no row is missing.

A task must be the only one that ever wrote to its Kafka partitions in this transaction. So a task that Spark runs
again, alone or with its stage, writes nothing and reports that. Then the driver aborts, and the batch fails. A task
whose executor lacks this library, or something that the library needs, reports that too: after an exception Spark
would run the task again, perhaps on an executor that has the library.

Spark tells Python the attempt number of the task. The attempt number of the stage is only in the name of the thread
that computes the rows: "Executor task launch worker for task 0.0 in stage 2.1 (TID 3)". A column of each task's first
row has this name. A task without rows does not see it, so the driver asks Spark about the stage before it commits
(`ran_again`).
"""

from __future__ import annotations

import json
import os
import re
import time
from collections.abc import Callable, Iterator, Sequence, Set
from dataclasses import dataclass, field
from typing import Any

import pyarrow
from confluent_kafka import KafkaError, KafkaException
from pyspark import SparkContext, TaskContext, cloudpickle

from exactly_once_kafka.errors import IncompleteWrite
from exactly_once_kafka.producer_options import NO_ASSERTS

NEEDED = "exactly_once_kafka|kafka|pyarrow|numpy|google_crc32c|confluent_kafka"
SAID = (
    rf"^(?:ModuleNotFound|Import)Error: .*'(?:{NEEDED})\b.*",
    r"\[PACKAGE_NOT_INSTALLED\].*",
    r"\[PYTHON_VERSION_MISMATCH\].*",
    r"Cannot run program .*",
)
FILES = ("ssl_cafile", "ssl_certfile", "ssl_keyfile")


class MissingDependency(Exception):
    """An executor lacks something that it needs to write; the driver may have it."""


def check_environment(connection: dict[str, Any]) -> None:
    """Raise MissingDependency if a file that the connection needs cannot be read here, or under `python -O`."""
    if not __debug__:
        raise MissingDependency(NO_ASSERTS)
    for name in FILES:
        if (path := connection.get(name)) and not os.access(path, os.R_OK):
            raise MissingDependency(f"file {path} does not exist, or cannot be read")


def missing_in(error: str) -> str | None:
    """Return the line of Spark's error that says what the executor's Python lacks, or that there is no Python."""
    found = re.search("|".join(SAID), error, re.MULTILINE)
    return found[0] if found else None


def reporting(function: Callable[[Any], Iterator[Any]]) -> Callable[[Any], Iterator[Any]]:
    """Return a function that unpickles `function` on the executor and calls it; it yields the same reports.

    If a module that `function` needs is missing there, it yields a report that says so.
    """
    pickled, failed = cloudpickle.dumps(function), LACKING  # type: ignore[no-untyped-call]

    def call(batches: Any) -> Iterator[Any]:
        import json
        import pickle

        import pyarrow

        try:
            write = pickle.loads(pickled)
        except ImportError as error:
            report = {"failed": failed, "error": f"{type(error).__name__}: {error}"}
            yield pyarrow.RecordBatch.from_pylist([{"report": json.dumps(report)}])
            return
        yield from write(batches)

    return call


THREAD = "exactly_once_thread"
FIRST_ROW = "monotonically_increasing_id() % 8589934592 = 0"
THREAD_OF_FIRST_ROW = f"IF({FIRST_ROW}, java_method('java.lang.Thread', 'currentThread'), NULL)"
ATTEMPT_OF_STAGE = re.compile(r" in stage \d+\.(\d+) ")


def in_first_attempt(first: pyarrow.RecordBatch | None) -> bool:
    """Tell whether the task and its stage run for the first time; False if Spark does not say.

    `first` has the first of the task's rows. For a task without rows it is None; then the driver checks the stage.
    """
    context = TaskContext.get()
    return context is not None and context.attemptNumber() == 0 and (first is None or of_first_stage(first))


def of_first_stage(rows: pyarrow.RecordBatch) -> bool:
    """Tell, from the first row of a task, whether its stage runs for the first time."""
    found = ATTEMPT_OF_STAGE.search(str(rows.column(THREAD)[0]))
    return bool(found and found[1] == "0")


SECONDS = 5.0  # for Spark's listeners to note what has happened, which takes them some milliseconds
REST = 0.001  # seconds between two requests to Spark


def ran_again(spark: SparkContext, stages: Set[int | None]) -> bool | None:
    """Tell whether the stage of all reported tasks ran again, after tasks of its first attempt had failed.

    None if Spark does not say: it may have forgotten the stage (spark.ui.retainedStages).
    """
    if len(stages) != 1 or None in stages:
        return None
    [stage] = stages
    tracker, until = spark.statusTracker(), time.monotonic() + SECONDS
    while time.monotonic() < until:
        found = tracker.getStageInfo(stage)  # type: ignore[arg-type]
        if found is not None and found.currentAttemptId > 0:
            return True
        if found is not None and found.numCompletedTasks == found.numTasks:
            return False
        time.sleep(REST)
    return None


# Why a task has failed.
AGAIN = "again"  # Spark ran it again
LACKING = "lacking"  # its executor lacks something that it needs to write
SILENT = "silent"  # Kafka did not answer
BAD_ROW = "bad row"  # a row cannot be a record
BY_KAFKA = "by Kafka"  # Kafka answered with an error code


class Unassigned(Exception):
    """A task that assigns Kafka partitions failed. It yields rows, so its report is the text of this exception."""


@dataclass(frozen=True)
class Report:
    """What a task wrote, or why it failed.

    `size`: bytes of the rows in Arrow; `written`: [topic, partition, records acknowledged] for each partition.
    `failed`: why the task failed, or ""; `error` says more, `code` is Kafka's. `stage`: Spark's id of the stage.
    """

    rows: int = 0
    size: int = 0
    written: list[tuple[str, int, int]] = field(default_factory=list)
    failed: str = ""
    error: str = ""
    code: int | None = None
    stage: int | None = None

    @classmethod
    def parse(cls, text: str) -> Report:
        return cls(**json.loads(text))

    @classmethod
    def in_trace(cls, trace: str) -> Report | None:
        """Return the report of the task that raised Unassigned, from Spark's error; None if none did."""
        found = re.search(rf"{Unassigned.__name__}: (\{{.*\}})$", trace, re.MULTILINE)
        return cls.parse(found[1]) if found else None

    def __str__(self) -> str:
        return json.dumps(vars(self))


def counted(reports: Sequence[Report]) -> int:
    """Return how many rows were written, if all of them were acknowledged.

    Raises a task's error, as KafkaException, ValueError or TimeoutError; and IncompleteWrite if a task was run again,
    two wrote to one partition, or a row is missing.
    """
    for report in sorted(reports, key=lambda each: each.failed == AGAIN):  # raise an error that says more first
        _raise(report)
    written = [(topic, partition) for report in reports for topic, partition, _ in report.written]
    if len(set(written)) < len(written):
        raise IncompleteWrite("two tasks wrote to one Kafka partition")
    rows = sum(report.rows for report in reports)
    acknowledged = sum(records for report in reports for *_, records in report.written)
    if rows != acknowledged:
        raise IncompleteWrite(f"{acknowledged} of {rows} rows were acknowledged")
    return rows


def _raise(report: Report) -> None:
    if report.failed == BY_KAFKA and report.code is not None:
        raise KafkaException(KafkaError(report.code, report.error))
    if report.failed == AGAIN:
        raise IncompleteWrite(
            "Spark ran a task of the batch again, which might have written its rows twice; Spark's log says why it "
            "failed before"
        )
    if report.failed == BAD_ROW:
        raise ValueError(report.error)
    if report.failed == SILENT:
        raise TimeoutError(report.error)
    if report.failed:
        raise IncompleteWrite(report.error)
