"""Executors in processes of their own: driver and executors are killed, and nothing is lost or doubled."""

from __future__ import annotations

import os
import random
import signal

import pytest

from labs.equipment import SparkCluster, eventually
from labs.evidence.audit import audit
from labs.evidence.reader import read_results
from labs.faults import Fault, JobFailed, JobProcess

CRASH = Fault("after_commit", 4, "kill")


class LocalCluster:
    """Spark's own imitation of a cluster: master and workers in the driver's JVM, executors in processes."""

    master = "local-cluster[2,1,1024]"

    def executor_pids(self, job: JobProcess) -> list[int]:
        return job.executor_pids()


class Standalone(SparkCluster):
    def executor_pids(self, job: JobProcess | None = None) -> list[int]:
        return super().executor_pids()


@pytest.fixture(params=["local-cluster", "standalone"])
def cluster(request):
    if request.param == "local-cluster":
        yield LocalCluster()
    else:
        with Standalone() as started:
            yield started


@pytest.mark.timeout(600)
def test_killed_driver_and_killed_executor_neither_lose_nor_double(cluster, job_options, classroom_log):
    options = job_options | {"environment": {"SPARK_MASTER": cluster.master}}
    with JobProcess((CRASH,), **options) as job, pytest.raises(JobFailed, match="killed by SIGKILL"):
        job.wait(120)
    with JobProcess(**options) as job:
        batch = random.Random(7).randint(6, 9)
        eventually(lambda: f"batch {batch} begins" in job.output() or not job.running, timeout=120)
        executors = cluster.executor_pids(job)
        assert len(executors) == 2, job.output()
        os.kill(executors[0], signal.SIGKILL)
        assert f"batch {batch + 2} begins" not in job.output()  # in the middle of the run, not after it
        job.wait(120)
        assert f"batch {CRASH.batch} begins" in job.output()  # the batch that was committed is replayed
    verdict = audit(classroom_log.expected, read_results(options["bootstrap_servers"], options["sink_topic"]))
    assert verdict.valid, verdict
