"""A fault that is armed by a file strikes the job that it was armed for, and at once."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import psutil
import pytest

from labs.equipment.waiting import eventually
from labs.faults.fault_points import JOB_MARK, TaskFaults

NO_PROCESS = 1 << 30  # above every limit of process ids


def test_task_whose_job_is_dead_does_not_strike_in_place_of_the_next_job(tmp_path, monkeypatch):
    monkeypatch.setenv(JOB_MARK, str(NO_PROCESS))
    faults = TaskFaults(str(tmp_path))
    with faults.armed("before_commit", "job") as struck:
        faults("before_commit", 1)
        assert not struck.exists()


@pytest.mark.parametrize("how", ["job", "freeze"])
def test_task_that_belongs_to_no_job_says_so_where_it_would_strike(tmp_path, monkeypatch, how):
    monkeypatch.delenv(JOB_MARK, raising=False)
    faults = TaskFaults(str(tmp_path))
    with faults.armed("before_commit", how), pytest.raises(RuntimeError, match="this task belongs to none"):
        faults("before_commit", 1)


# As a job does it: a thread that is not the main one, which waits, reaches the points of a batch.
JOB = """
import os, sys, threading
from labs.faults.fault_points import JOB_MARK, TaskFaults
os.environ[JOB_MARK] = str(os.getpid())
points = TaskFaults(sys.argv[1])
def batches():
    for batch in range(1 << 30):
        points("before_commit", batch)
        open(sys.argv[1] + "/committed", "w").write(str(batch))
threading.Thread(target=batches).start()
"""


@pytest.mark.bench
def test_job_that_runs_freezes_at_the_point_and_not_behind_it(tmp_path):
    faults = TaskFaults(str(tmp_path))
    job = subprocess.Popen([sys.executable, "-c", JOB, str(tmp_path)], process_group=0)
    try:
        eventually((tmp_path / "committed").exists, 30)
        for _ in range(5):
            with faults.armed("before_commit", "freeze") as struck:
                eventually(struck.exists, 30)
            eventually(lambda: psutil.Process(job.pid).status() == psutil.STATUS_STOPPED, 30)
            assert faults.process("before_commit") == job.pid
            assert (tmp_path / "committed").stat().st_mtime_ns < struck.with_suffix(".process").stat().st_mtime_ns
            os.killpg(job.pid, signal.SIGCONT)
    finally:
        job.kill()
        job.wait()
