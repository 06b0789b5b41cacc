"""Executors in processes of their own: driver and executor are killed, and nothing is lost or doubled.

On a standalone cluster: see test_outgrowing_page.
"""

from __future__ import annotations

import random

import pytest

from labs.equipment.waiting import eventually
from labs.evidence.auditor.audit import audit
from labs.evidence.readers.results import read_results
from labs.faults.fault_points import Fault
from labs.faults.job import JobFailed, JobProcess

pytestmark = pytest.mark.long

CRASH = Fault("after_commit", 4, "kill")
LOCAL_CLUSTER = "local-cluster[2,1,1024]"  # Spark's own imitation: master and workers in the driver's JVM


@pytest.mark.soak
@pytest.mark.timeout(1800)
def test_killed_driver_and_killed_executor_neither_lose_nor_double(job_options, classroom_log):
    options = job_options | {"environment": {"SPARK_MASTER": LOCAL_CLUSTER}}
    with JobProcess((CRASH,), **options) as job, pytest.raises(JobFailed, match="killed by SIGKILL"):
        job.wait(300)
    with JobProcess(**options) as job:
        batch = random.Random(7).randint(6, 9)
        eventually(lambda: job.has_begun(batch) or not job.running, timeout=300)
        executors = job.executors()
        assert len(executors) == 2, job.output()
        executors[0].kill()
        done = job.batches_done()
        job.wait(300)
        assert job.batches_done() > done + 1  # it was killed in the middle of the run, not after it
        assert job.has_begun(CRASH.batch)  # the batch that was committed is replayed
    verdict = audit(classroom_log.expected, read_results(options["bootstrap_servers"], options["sink_topic"]))
    assert verdict.valid, verdict
