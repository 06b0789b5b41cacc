"""What executors cannot write, for their Python lacks the library, the driver writes: each row once, and said."""

from __future__ import annotations

import sys
import tempfile

import pytest

from exactly_once_kafka.executors.lacking import lacking_in
from exactly_once_kafka.executors.shared_transaction import SharedTransaction
from exactly_once_kafka.sink import ExactlyOnceKafkaSink
from labs.equipment.eventually import eventually
from labs.equipment.topics import end_offsets
from labs.evidence.readers.results import read_committed
from tests.sink.test_executors import BY_EXECUTORS

ROWS, BATCHES = 200, 3
ALL = list(range(ROWS * BATCHES))
# Python finds all but the sink: the process that takes the file `able` finds it, and the others say that they do not as
# soon as they find the file `fail`.
LACKING = """
import pathlib, sys, time
class Lacking:
    def find_spec(self, name, path=None, target=None):
        if name != "exactly_once_kafka":
            return
        try:
            pathlib.Path({folder!r}, "able").rename({folder!r} + "/taken")
        except FileNotFoundError:
            while not pathlib.Path({folder!r}, "fail").exists():
                time.sleep(0.01)
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name) from None
sys.meta_path.insert(0, Lacking())
"""


@pytest.fixture
def folder(spark, tmp_path, monkeypatch):
    """The folder of a Python that lacks the library, which Spark starts."""
    (folder := tmp_path / "lacking").mkdir()
    (folder / "sitecustomize.py").write_text(LACKING.format(folder=str(folder)))
    python = folder / "python"
    python.write_text(f'#!/bin/sh\nPYTHONPATH="{folder}:$PYTHONPATH" exec "{sys.executable}" "$@"\n')
    python.chmod(0o755)
    monkeypatch.setattr(spark.sparkContext, "pythonExec", str(python))
    return folder


@pytest.fixture
def copy(spark, broker, topic, monkeypatch):
    """Copy numbers by a sink that has executors write, and return what is published, in order.

    `meanwhile` is called with the topic's name while they do; `tried` has an element for each batch that they were to
    write.
    """

    def copy(*columns, meanwhile=lambda results: None):
        real, results = SharedTransaction._by_executors, topic(partitions=2)
        monkeypatch.setattr(SharedTransaction, "_by_executors", lambda *given: copy.tried.append(1) or real(*given))
        sink = ExactlyOnceKafkaSink(results, results, bootstrap_servers=broker.bootstrap_servers, **BY_EXECUTORS)
        stream = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", ROWS).option("numPartitions", 3)
        rows = stream.load().where(f"value < {ROWS * BATCHES}").selectExpr("string(value) AS value", *columns)
        query = rows.writeStream.option("checkpointLocation", tempfile.mkdtemp()).foreachBatch(sink).start()
        try:
            meanwhile(results)
            eventually(lambda: query.exception() or (query.lastProgress or {"batchId": 0})["batchId"] >= BATCHES)
        finally:
            query.stop()
        assert query.exception() is None
        return sorted(int(m.value()) for m in read_committed(broker.bootstrap_servers, results))

    copy.tried = []
    return copy


@pytest.mark.parametrize("columns", [[], ["string(value % 50) AS key"]], ids=["no keys", "keys, for which rows move"])
def test_driver_writes_what_executors_without_the_library_cannot(folder, copy, caplog, columns):
    (folder / "fail").touch()
    assert copy(*columns) == ALL
    assert copy.tried == [1]  # and not in the batches after it
    said = "the driver writes, since executors cannot: ModuleNotFoundError: No module named 'exactly_once_kafka'"
    assert said in caplog.text


def test_what_one_executor_could_write_is_written_anew(folder, copy, broker):
    def once_one_has_written(results):
        eventually(lambda: any(end_offsets(broker.bootstrap_servers, results).values()))
        (folder / "fail").touch()

    (folder / "able").touch()
    assert copy(meanwhile=once_one_has_written) == ALL
    assert copy.tried == [1]


def test_driver_writes_where_executors_have_no_python(spark, copy, caplog, monkeypatch):
    monkeypatch.setattr(spark.sparkContext, "pythonExec", "/nowhere/python")
    assert copy() == ALL
    assert copy.tried == [1]
    assert 'executors cannot: Cannot run program "/nowhere/python"' in caplog.text


def test_missing_module_of_somebody_elses_is_not_taken_for_the_librarys():
    assert lacking_in("x\nModuleNotFoundError: No module named 'theirs'\n") is None
    assert lacking_in("ValueError: said ImportError: No module named 'numpy'") is None
    assert lacking_in("x\nModuleNotFoundError: No module named 'numpy'\ny") is not None
