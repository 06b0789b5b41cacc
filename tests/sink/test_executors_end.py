"""A process that has used the sink by executors, and drops or keeps it, ends without a word."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
from pathlib import Path

import pytest

from exactly_once_kafka.deadline import Deadline
from exactly_once_kafka.kafka_client.cluster import Cluster
from labs.equipment.waiting import eventually

pytestmark = pytest.mark.long

ROOT = Path(__file__).parents[2]
PROGRAM = """
import gc, logging, sys, tempfile
from pathlib import Path

logging.basicConfig(level=logging.WARNING)  # to standard error
from exactly_once_kafka import ExactlyOnceKafkaSink
from labs.equipment.spark import spark_session

servers, topic, what = sys.argv[1:]
spark = spark_session("end")
directory = tempfile.TemporaryDirectory()
source = Path(directory.name)
(source / "line").write_text("a batch")
sink = ExactlyOnceKafkaSink(topic, topic, bootstrap_servers=servers, writers="executors", driver_rows=0)
rows = spark.readStream.text(str(source))
rows.writeStream.trigger(availableNow=True).foreachBatch(sink).start().awaitTermination()
coordinator = sink.transport.coordinator
assert coordinator.cluster.transaction_version
if what == "drop":
    coordinator.cluster = sink._transport = None
    gc.collect()
print("done")
"""


@pytest.mark.timeout(200)
@pytest.mark.parametrize("what", ["drop", "keep"])
def test_process_that_used_the_sink_says_nothing_on_standard_error(broker, topic, what):
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-c", PROGRAM, broker.bootstrap_servers, topic(), what]
    ended = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=180)
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "done\n", "")


def test_cluster_that_is_dropped_closes_its_connections(broker, topic, caplog):
    cluster = Cluster({"bootstrap_servers": broker.bootstrap_servers})
    cluster.partitions(topic(), Deadline(30))
    manager, end = cluster._manager, cluster._end
    del cluster
    eventually(lambda: gc.collect() is not None and not end.alive)
    assert manager.closed
    assert not any("error" in message.lower() for message in caplog.messages)
