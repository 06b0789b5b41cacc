"""The executors of a real standalone cluster write: a master and two workers, which start another for one that dies."""

from __future__ import annotations

from contextlib import closing

import pytest

from labs.equipment.spark_cluster import SparkCluster
from labs.evidence.readers.results import read_visible
from labs.faults.proxy import proxied_broker
from tests.sink.cluster_driver import EXECUTORS, ClusterDriver, writers_of
from tests.sink.test_executors_on_a_cluster import AGAIN, Trial

pytestmark = [pytest.mark.long, pytest.mark.timeout(600)]


@pytest.fixture
def trial(tmp_path):
    machines = SparkCluster(workers=EXECUTORS)
    with proxied_broker(meanwhile=machines.start) as kafka, machines, closing(ClusterDriver(machines.master)) as driver:
        yield Trial(kafka, driver, tmp_path, partitions=EXECUTORS, batches=2)


def test_executor_killed_while_it_writes_fails_the_batch_which_all_executors_write_again(trial):
    late = trial.begin_and_stop_in_the_middle()
    trial.kill_an_executor()
    assert AGAIN in trial.end()
    for request in late:
        request.deliver()
    assert read_visible(trial.servers, trial.topic) == []
    trial.begin()
    assert trial.end() == ""
    assert trial.audit().valid, trial.audit()
    assert writers_of(read_visible(trial.servers, trial.topic)) == {"0", "1"}
