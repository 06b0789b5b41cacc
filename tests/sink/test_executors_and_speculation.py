"""Spark that runs slow tasks twice (spark.speculation): the driver writes then, which takes each row from one attempt.

Where it stops: Spark gives a second attempt to another machine only, so that none is seen here. What a task does that
is run again, for whatever reason: see test_executors_on_a_cluster.
"""

from __future__ import annotations

import pytest

from labs.evidence.readers.results import read_visible
from labs.faults.proxy import proxied_broker
from tests.sink.cluster_driver import ClusterDriver
from tests.sink.test_executors_on_a_cluster import Trial


@pytest.fixture
def trial(tmp_path):
    with proxied_broker() as kafka:
        driver = ClusterDriver(spark_speculation="true")
        yield Trial(kafka, driver, tmp_path, partitions=2, batches=1)
        driver.close()


@pytest.mark.timeout(900)
def test_driver_writes_where_spark_may_run_a_task_twice(trial):
    trial.begin()
    assert trial.end() == ""
    assert trial.audit().valid, trial.audit()
    attempts = {result.attempt for result in read_visible(trial.servers, trial.topic)}
    assert len(attempts) == 1  # executors would have given theirs a name each
