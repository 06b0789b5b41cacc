"""What executors cannot write, for their Python lacks the library, the driver writes: each row once, and said."""

from __future__ import annotations

import fcntl
import sys
from concurrent.futures import ThreadPoolExecutor
from unittest.mock import patch

import pytest
from pyspark.errors import StreamingQueryException

from exactly_once_kafka.executors.report import missing_in
from exactly_once_kafka.executors.transport import ExecutorsTransport
from labs.equipment.topics import end_offsets
from labs.equipment.waiting import eventually
from tests.sink.test_executors import ALL, At, Copy

# Python finds all but the sink: the process that takes the file `able` finds it, and the others say that they do not as
# soon as nobody holds the lock of the file `held`.
MISSING = """
import fcntl, pathlib, sys
class MissingDependency:
    def find_spec(self, name, path=None, target=None):
        if name != "exactly_once_kafka":
            return
        try:
            pathlib.Path({folder!r}, "able").rename({folder!r} + "/taken")
        except FileNotFoundError:
            with open({folder!r} + "/held") as held:
                fcntl.flock(held, fcntl.LOCK_SH)
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name) from None
sys.meta_path.insert(0, MissingDependency())
"""


# Python reaches nobody: kafka-python connects in this way, and Spark itself connects to Python.
UNREACHABLE = """
import errno, socket
socket.socket.connect_ex = lambda self, address: errno.EHOSTUNREACH
"""


def start_python_with(spark, folder, customized):
    """Let Spark start a Python that executes these lines first."""
    folder.mkdir()
    (folder / "sitecustomize.py").write_text(customized)
    python = folder / "python"
    python.write_text(f'#!/bin/sh\nPYTHONPATH="{folder}:$PYTHONPATH" exec "{sys.executable}" "$@"\n')
    python.chmod(0o755)
    return patch.object(spark.sparkContext, "pythonExec", str(python))


@pytest.fixture
def folder(spark, tmp_path):
    """The folder of a Python that lacks the library, which Spark starts."""
    folder = tmp_path / "lacking"
    with start_python_with(spark, folder, MISSING.format(folder=str(folder))):
        (folder / "held").touch()
        yield folder


@pytest.fixture
def tried(calls_of):
    """A list with an element for each batch that executors were to write."""
    return calls_of(ExecutorsTransport, "_write_by_executors")


@pytest.mark.long
@pytest.mark.parametrize("columns", [[], ["string(value % 50) AS key"]], ids=["no keys", "keys, for which rows move"])
def test_driver_writes_what_executors_without_the_library_cannot(folder, spark, broker, tried, caplog, columns):
    copy = Copy(spark, broker.bootstrap_servers, 2, columns=columns)
    copy.once(copy.sink())
    assert copy.published() == ALL
    assert len(tried) == 1  # and not in the batches after it
    said = "the driver writes, since executors cannot: ModuleNotFoundError: No module named 'exactly_once_kafka'"
    assert any(said in message and str(folder / "python") in message for message in caplog.messages)


@pytest.mark.long
def test_what_one_executor_could_write_is_written_anew(folder, spark, broker, tried):
    copy = Copy(spark, broker.bootstrap_servers, 2, columns=[])
    (folder / "able").touch()
    with ThreadPoolExecutor(1) as beside, (folder / "held").open() as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        copying = beside.submit(copy.once, copy.sink())
        eventually(lambda: any(end_offsets(broker.bootstrap_servers, copy.topic).values()), 120)  # one has written
        fcntl.flock(held, fcntl.LOCK_UN)
        copying.result()
    assert copy.published() == ALL
    assert len(tried) == 1


@pytest.mark.long
def test_driver_writes_where_executors_have_no_python(spark, broker, tried, caplog, monkeypatch):
    monkeypatch.setattr(spark.sparkContext, "pythonExec", "/nowhere/python")
    copy = Copy(spark, broker.bootstrap_servers, 2, columns=[])
    copy.once(copy.sink())
    assert copy.published() == ALL
    assert len(tried) == 1
    said = 'executors cannot: Cannot run program "/nowhere/python"'
    assert any(said in message for message in caplog.messages)  # not .text: once PySpark logs, that is JSON


@pytest.mark.long
def test_driver_writes_where_executors_lack_a_file_of_the_connection(spark, broker, tried, caplog):
    copy = Copy(spark, broker.bootstrap_servers, 2, columns=[])
    sink = copy.sink()

    def lose_the_file():
        sink.transport.coordinator.connection["ssl_cafile"] = "/nowhere/ca.pem"

    with copy.points.armed(At("before_look", 0, lose_the_file)):
        copy.once(sink)
    assert copy.published() == ALL
    assert len(tried) == 1
    said = "executors cannot: file /nowhere/ca.pem does not exist, or cannot be read"
    assert any(said in message for message in caplog.messages)


@pytest.mark.long
def test_batch_fails_where_executors_do_not_reach_kafka_and_is_repeated_where_they_do(spark, broker, tmp_path):
    copy = Copy(spark, broker.bootstrap_servers, 2, columns=[])
    with (
        start_python_with(spark, tmp_path / "alone", UNREACHABLE),
        pytest.raises(StreamingQueryException, match="BatchFailed"),
    ):
        copy.once(copy.sink(transaction_timeout_ms=5000))
    assert copy.published() == []
    copy.once(copy.sink())
    assert copy.published() == ALL


def test_missing_module_of_somebody_elses_is_not_taken_for_the_librarys():
    assert missing_in("x\nModuleNotFoundError: No module named 'theirs'\n") is None
    assert missing_in("ValueError: said ImportError: No module named 'numpy'") is None
    assert missing_in("x\nModuleNotFoundError: No module named 'numpy'\ny") is not None
