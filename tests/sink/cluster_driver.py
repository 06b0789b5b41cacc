"""A Spark driver with two executors in processes of their own, which publishes batches for a test until it is killed.

Orders and answers are files, so that a test can strike in the middle. Each row is so large that it is a record batch of
its own, and comes in another order when Spark computes it again, as rows do that are fetched from several executors.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import json
import os
import pickle
import shutil
import sys
import tempfile
import threading
import uuid
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil
import pyarrow
from pyspark import TaskContext
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession

from exactly_once_kafka.executors import transport
from exactly_once_kafka.sink import ExactlyOnceKafkaSink
from labs.equipment.child_process import ChildProcess
from labs.equipment.spark import spark_session
from labs.equipment.spark_cluster import is_executor
from labs.equipment.waiting import eventually
from labs.evidence.auditor.observed import Result
from labs.faults.fault_points import JOB_MARK, Fault, FaultPoints

ROOT = Path(__file__).parents[2]
EXECUTORS = 2
ROWS = 8  # of a batch
PADDING = "x" * 500_000
COPY, OVER = "copy", "over"
SETTINGS = {"spark_shuffle_io_retryWait": "100ms", "spark_executorEnv_PYTHONPATH": str(ROOT)}


@dataclass(frozen=True)
class Order:
    """What to publish, from the checkpoint in `directory`: that many batches into a topic of so many partitions."""

    sink: type[ExactlyOnceKafkaSink]
    bootstrap_servers: str
    topic: str
    partitions: int
    batches: int
    directory: Path
    notes: Path
    die_at: str | None = None
    others: Path | None = None  # a file that grows while jobs of the same application that need no Kafka go on
    keeps_core: int = transport.KEEPS_CORE  # seconds for which a task waits for a silent Kafka
    slow: str = ""  # the last task computes no row before a COPY of it does, or before all is OVER, which a note says
    login: dict[str, str] = field(default_factory=dict, repr=False)  # further options of the sink


class ClusterDriver:
    """The driver's process, which is started when it is needed. It ends with this one. Without a `master`, Spark's own
    imitation of a cluster is started with it."""

    def __init__(self, master: str = f"local-cluster[{EXECUTORS},1,1024]", **settings: str):
        self._master, self._settings = master, settings
        self._directory = Path(tempfile.mkdtemp(prefix="labs-cluster-"))
        self._process: ChildProcess | None = None
        self._orders = 0

    def begin(self, order: Order) -> None:
        if self._process and self._process.pid is None:
            self._process.kill()  # its executors may outlive it, and with the last of them goes the directory
            self._process = None
        if self._process is None:
            command = [sys.executable, "-m", "tests.sink.cluster_driver", str(self._directory)]
            environment = {**os.environ, "PYTHONPATH": str(ROOT), "SPARK_MASTER": self._master}
            environment |= {"TMPDIR": str(self._directory), "SETTINGS": json.dumps(SETTINGS | self._settings)}
            self._process = ChildProcess(command, self._directory / "log", leftovers=self._directory, env=environment)
            self._orders = 0
            for left in self._directory.glob("*.pickle"):
                left.unlink()
        _write(self._directory / f"order-{self._orders}.pickle", order)
        self._orders += 1

    def end(self) -> str:
        """Wait until the order is carried out, and return why the query failed, or nothing; or "killed"."""
        answer = self._directory / f"answer-{self._orders - 1}.pickle"
        process = self._process
        assert process
        eventually(lambda: answer.exists() or process.pid is None, timeout=240)
        return pickle.loads(answer.read_bytes()) if answer.exists() else "killed"

    def close(self) -> None:
        if self._process:
            self._process.kill()
        shutil.rmtree(self._directory, ignore_errors=True)


def expected(batches: int) -> dict[tuple[int, str], int]:
    """Return what that many batches publish."""
    return {(batch, str(number)): 1 for batch in range(batches) for number in range(ROWS)}


def writers_of(results: Iterable[Result]) -> set[str]:
    """Return who wrote, by the names of the attempts: the numbers of executors' tasks, or "driver"."""
    return {str(result.attempt).rpartition(".")[2] for result in results}


def _write(path: Path, content: object) -> None:
    (draft := path.with_suffix(".draft")).write_bytes(pickle.dumps(content))
    draft.rename(path)


def main(directory: Path) -> None:
    os.environ[JOB_MARK] = str(os.getpid())
    spark = spark_session("cluster", **json.loads(os.environ["SETTINGS"]))
    for number in itertools.count():
        order = directory / f"order-{number}.pickle"
        eventually(order.exists, timeout=3600)
        eventually(lambda: len(_executors(spark)) == EXECUTORS, timeout=120)
        try:
            given = pickle.loads(order.read_bytes())
            with _others(spark, given.others):
                _publish(spark, given)
            answer = ""
        except StreamingQueryException as error:
            answer = str(error)
        _write(directory / f"answer-{number}.pickle", answer)


def _executors(spark: SparkSession) -> list[object]:
    """Return those that have nothing to do."""
    found = spark.sparkContext._jsc.sc().statusTracker().getExecutorInfos()
    return [each for each in list(found)[1:] if not each.numRunningTasks()]


@contextlib.contextmanager
def _others(spark: SparkSession, file: Path | None) -> Iterator[None]:
    """Run other jobs meanwhile, one after the other, each with a task for every executor; `file` grows with each."""
    ended = threading.Event()

    def work() -> None:
        while file and not ended.is_set():
            spark.range(100, numPartitions=EXECUTORS).count()
            with file.open("a") as lengthening:
                lengthening.write(".")

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def _publish(spark: SparkSession, order: Order) -> None:
    transport.KEEPS_CORE = order.keeps_core
    points = FaultPoints()
    options: dict[str, Any] = {"bootstrap_servers": order.bootstrap_servers, "points": points, **order.login}
    sink = order.sink(order.topic, order.topic, writers="executors", driver_rows=0, **options)
    (source := order.directory / "source").mkdir(exist_ok=True)
    for batch in range(order.batches):
        (source / str(batch)).write_text("a batch\n")
    stream = spark.readStream.option("maxFilesPerTrigger", 1).text(str(source))
    writer = stream.writeStream.option("checkpointLocation", str(order.directory / "checkpoint"))
    writer = writer.trigger(availableNow=True)
    with points.armed(*[Fault(order.die_at, 0, "kill")] if order.die_at else []):
        writer.foreachBatch(lambda _, batch: sink(rows_of(spark, order, batch), batch)).start().awaitTermination()


def rows_of(spark: SparkSession, order: Order, batch: int) -> DataFrame:
    """Return the rows of a batch; each executor computes its part of them, where there is more than one partition."""
    make = functools.partial(_make, order.notes, order.partitions, batch, order.slow)
    return spark.range(0, ROWS, 1, order.partitions).mapInArrow(make, "value string, partition int")


def _make(notes: Path, partitions: int, batch: int, slow: str, ids: Iterator[pyarrow.RecordBatch]):
    """Leave a note by which executor these rows are computed, wait for the other tasks, and yield the rows."""
    executor = next(each.pid for each in psutil.Process().parents() if is_executor(each))
    context = TaskContext.get()
    assert context
    part = f"{batch}-{context.partitionId()}"
    again = any(notes.glob(f"{part}.*"))
    (notes / f"{part}.{uuid.uuid4().hex}.{executor}").touch()
    eventually(lambda: len({note.name.partition(".")[0] for note in notes.glob(f"{batch}-*")}) == partitions, 120)
    if slow and part == f"{batch}-{partitions - 1}":
        eventually(lambda: len(list(notes.glob(f"{part}.*"))) > 1, 120)
        if slow == OVER and not again:
            eventually((notes / OVER).exists, 120)
    numbers = [number for each in ids for number in each.column("id").to_pylist()]
    for number in reversed(numbers) if again else numbers:
        value = f'{{"window_start":{batch},"ip":"{number}","count":1,"padding":"{PADDING}"}}'
        yield pyarrow.RecordBatch.from_arrays(
            [pyarrow.array([value]), pyarrow.array([number % partitions], pyarrow.int32())], ["value", "partition"]
        )


if __name__ == "__main__":
    main(Path(sys.argv[1]))
