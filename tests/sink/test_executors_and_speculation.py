"""Spark that runs slow tasks twice (spark.speculation): the driver writes then; a task that ran twice would not."""

from __future__ import annotations

import pytest

from exactly_once_kafka.sink import ExactlyOnceKafkaSink
from labs.evidence.readers.results import read_visible
from labs.faults.proxy import proxied_broker
from tests.sink.cluster_driver import ClusterDriver
from tests.sink.test_executors_on_a_cluster import AGAIN, Trial, refused

SPECULATION = {
    "spark_speculation": "true",
    "spark_speculation_interval": "100ms",
    "spark_speculation_quantile": "0.5",  # of the tasks must have ended, before the others count as slow
    "spark_speculation_multiplier": "1.01",
    "spark_speculation_efficiency_enabled": "false",  # would spare a task that is not twice as slow
}
pytestmark = pytest.mark.timeout(900)


class TakesNoNotice(ExactlyOnceKafkaSink):
    """The executors write although Spark may run a task twice."""

    def _choose_writers(self, rows, patience):
        pass


@pytest.fixture(scope="module")
def trials(tmp_path_factory):
    with proxied_broker() as kafka:
        driver = ClusterDriver(**SPECULATION)
        yield lambda name: Trial(kafka, driver, tmp_path_factory.mktemp(name), partitions=2, batches=1)
        driver.close()


def test_driver_writes_where_spark_may_run_a_task_twice(trials):
    trial = trials("by-driver")
    trial.begin()
    assert trial.end() == ""
    assert trial.audit().valid, trial.audit()
    attempts = {result.attempt for result in read_visible(trial.servers, trial.topic)}
    assert len(attempts) == 1  # executors would have given theirs a name each


def test_task_that_runs_twice_writes_once_and_the_batch_is_repeated(trials):
    trial = trials("twice")
    late = trial.begin_and_stop_in_the_middle(TakesNoNotice)
    late[0].deliver()  # its task goes on and ends, and the other one is slow
    assert AGAIN in trial.end()
    assert refused(late[1:]), "the batch is aborted"
    trial.begin(TakesNoNotice)
    assert trial.end() == ""
    assert trial.audit().valid, trial.audit()
