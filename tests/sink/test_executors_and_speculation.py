"""Spark that runs slow tasks twice (spark.speculation): no copy of a task ever writes a row.

The driver writes then, which takes each row from one attempt; and if executors wrote nevertheless, a copy would refuse.
Spark gives a copy to another machine only: to the cluster, two addresses of this one are two machines.
"""

from __future__ import annotations

import sys
from types import SimpleNamespace
from typing import cast

import pytest
from pyspark.sql import SparkSession

from exactly_once_kafka.sink import ExactlyOnceKafkaSink
from labs.equipment.spark_cluster import SparkCluster
from labs.evidence.readers.results import read_visible
from labs.faults.proxy import proxied_broker
from tests.sink.cluster_driver import COPY, OVER, ClusterDriver
from tests.sink.test_executors_on_a_cluster import AGAIN, Trial

pytestmark = [
    pytest.mark.long,
    pytest.mark.timeout(900),
    pytest.mark.skipif(
        sys.platform != "linux", reason="127.0.0.2 is an address of every Linux, and of no other system"
    ),
]
SPECULATION = {
    "spark_speculation": "true",
    "spark_speculation_interval": "100ms",
    "spark_speculation_quantile": "0.5",
    "spark_speculation_multiplier": "1.5",
    "spark_speculation_task_duration_threshold": "2s",  # for a task that is the only one of its stage
    "spark_speculation_efficiency_enabled": "false",
}


class DespiteSpeculation(ExactlyOnceKafkaSink):
    """Executors write, though Spark may run a task twice."""

    def transport_for(self, spark, deadline):
        without = SimpleNamespace(sparkContext=SimpleNamespace(getConf=lambda: {"spark.speculation": "false"}))
        return super().transport_for(cast(SparkSession, without), deadline)


@pytest.fixture(scope="module")
def cluster():
    with proxied_broker() as kafka, SparkCluster(workers=2, hosts=("127.0.0.1", "127.0.0.2")) as machines:
        driver = ClusterDriver(machines.master, **SPECULATION)
        yield kafka, driver
        driver.close()


def attempts(trial) -> list[str]:
    """Return which executor computed the slow task, for each time that one did."""
    return [note.name.rpartition(".")[2] for note in trial.notes.glob(f"0-{trial.partitions - 1}.*")]


@pytest.mark.soak
def test_driver_writes_where_spark_runs_a_slow_task_twice(cluster, tmp_path):
    kafka, driver = cluster
    trial = Trial(kafka, driver, tmp_path, partitions=2, batches=1)
    trial.begin(slow=COPY)
    assert trial.end() == ""
    assert len(set(attempts(trial))) == 2, "a copy has run"
    assert trial.audit().valid, trial.audit()
    names = {result.attempt for result in read_visible(trial.servers, trial.topic)}
    assert len(names) == 1  # executors would have given theirs a name each


def test_copy_of_a_task_writes_nothing_where_executors_write_nevertheless(cluster, tmp_path):
    kafka, driver = cluster
    trial = Trial(kafka, driver, tmp_path, partitions=1, batches=1)
    trial.begin(DespiteSpeculation, slow=OVER)  # or the first attempt might be through before the copy is heard
    assert AGAIN in trial.end()
    (trial.notes / OVER).touch()
    assert len(set(attempts(trial))) == 2, "a copy has run"
    assert read_visible(trial.servers, trial.topic) == []
    assert read_visible(trial.servers, trial.topic, "read_uncommitted") == []
    trial.begin()
    assert trial.end() == ""
    assert trial.audit().valid, trial.audit()
