"""The supervisor: how often it restarts, when it gives up, and what it tells."""

from __future__ import annotations

import threading

import pytest

from labs.faults.supervisor import GaveUp, Supervisor


def failing(times: int):
    runs = []

    def job(number: int) -> None:
        runs.append(number)
        if len(runs) <= times:
            raise RuntimeError(f"failure {number}\nand its details")

    job.runs = runs
    return job


def test_restarts_until_the_job_succeeds_and_reports_each_attempt():
    job, told = failing(2), []
    attempts = Supervisor(job, restarts=3, delay=0, report=told.append).run()
    assert job.runs == [1, 2, 3]
    assert told == attempts
    assert [str(a) for a in attempts] == [
        "attempt 1: failed: failure 1",
        "attempt 2: failed: failure 2",
        "attempt 3: finished",
    ]


def test_gives_up_after_the_last_restart_with_the_last_error():
    job = failing(9)
    with pytest.raises(GaveUp, match="gave up after 4 attempts; the last error: failure 4") as gave_up:
        Supervisor(job, restarts=3, delay=0, report=lambda _: None).run()
    assert job.runs == [1, 2, 3, 4]
    assert len(gave_up.value.attempts) == 4


def test_stop_ends_the_wait_for_the_next_restart():
    failed = threading.Event()
    supervisor = Supervisor(failing(9), restarts=9, delay=3600, report=lambda _: failed.set())
    running = threading.Thread(target=supervisor.run, daemon=True)
    running.start()
    assert failed.wait(10)
    supervisor.stop()
    running.join(10)
    assert not running.is_alive()


def test_ctrl_c_is_not_taken_for_a_failure():
    def interrupted(number: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        Supervisor(interrupted, restarts=3, delay=0).run()
