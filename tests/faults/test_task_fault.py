"""A fault in a task strikes for the job that it was armed for."""

from __future__ import annotations

from labs.faults.fault import JOB_MARK, TaskFaults

NO_PROCESS = 1 << 30  # above every limit of process ids


def test_task_whose_job_is_dead_does_not_strike_in_place_of_the_next_job(tmp_path, monkeypatch):
    monkeypatch.setenv(JOB_MARK, str(NO_PROCESS))
    faults = TaskFaults(str(tmp_path))
    with faults.armed("before_commit", "job") as struck:
        faults("before_commit", 1)
        assert not struck.exists()
