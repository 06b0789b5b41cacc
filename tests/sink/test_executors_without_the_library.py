"""What executors cannot write, for their Python lacks the library, the driver writes: each row once, and said."""

from __future__ import annotations

import sys
import tempfile

import pytest

from exactly_once_kafka.executors.shared_transaction import SharedTransaction
from exactly_once_kafka.sink import ExactlyOnceKafkaSink
from labs.equipment.eventually import eventually
from labs.equipment.topics import end_offsets
from labs.evidence.readers.results import read_committed
from tests.sink.test_executors import BY_EXECUTORS

ROWS, BATCHES = 200, 3
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
def executors_lack_it(spark, tmp_path, monkeypatch):
    """Have Spark start a Python that lacks the library; return its folder."""
    folder = tmp_path / "lacking"
    folder.mkdir()
    (folder / "sitecustomize.py").write_text(LACKING.format(folder=str(folder)))
    python = folder / "python"
    python.write_text(f'#!/bin/sh\nPYTHONPATH="{folder}:$PYTHONPATH" exec "{sys.executable}" "$@"\n')
    python.chmod(0o755)
    monkeypatch.setattr(spark.sparkContext, "pythonExec", str(python))
    return folder


@pytest.mark.parametrize("one_writes", [False, True], ids=["none has it", "one has it, and has written"])
def test_driver_writes_what_executors_cannot(spark, broker, topic, executors_lack_it, caplog, monkeypatch, one_writes):
    tried, real = [], SharedTransaction._by_executors
    monkeypatch.setattr(SharedTransaction, "_by_executors", lambda *given: tried.append(1) or real(*given))
    if one_writes:
        (executors_lack_it / "able").touch()
    results = topic(partitions=2)
    sink = ExactlyOnceKafkaSink(results, results, bootstrap_servers=broker.bootstrap_servers, **BY_EXECUTORS)
    stream = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", ROWS).option("numPartitions", 3).load()
    rows = stream.where(f"value < {ROWS * BATCHES}").selectExpr("string(value) AS value")
    query = rows.writeStream.option("checkpointLocation", tempfile.mkdtemp()).foreachBatch(sink).start()
    try:
        if one_writes:
            eventually(lambda: any(end_offsets(broker.bootstrap_servers, results).values()))
        (executors_lack_it / "fail").touch()
        eventually(lambda: query.exception() or (query.lastProgress or {"batchId": 0})["batchId"] >= BATCHES)
    finally:
        query.stop()
    assert query.exception() is None
    published = sorted(int(m.value()) for m in read_committed(broker.bootstrap_servers, results))
    assert published == list(range(ROWS * BATCHES))
    assert tried == [1]  # and not in the batches after it
    assert "the driver writes, since executors cannot: ModuleNotFoundError: No module named" in caplog.text
