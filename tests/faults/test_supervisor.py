"""The supervisor: how often it restarts, when it gives up, and what it tells."""

from __future__ import annotations

import threading

import pytest

from labs.faults.supervisor import Attempt, GaveUp, Supervisor


class Failing:
    """A job that fails so many times."""

    def __init__(self, times: int):
        self.times = times
        self.runs: list[int] = []

    def __call__(self, number: int) -> None:
        self.runs.append(number)
        if len(self.runs) <= self.times:
            raise RuntimeError(f"failure {number}\nand its details")


def test_restarts_until_the_job_succeeds_and_reports_each_attempt():
    job = Failing(2)
    told: list[Attempt] = []
    attempts = Supervisor(job, restarts=3, delay=0, report=told.append).run()
    assert job.runs == [1, 2, 3]
    assert told == attempts
    assert [str(a) for a in attempts] == [
        "attempt 1: failed: failure 1",
        "attempt 2: failed: failure 2",
        "attempt 3: finished",
    ]


def test_gives_up_after_the_last_restart_with_the_last_error():
    job = Failing(9)
    with pytest.raises(GaveUp, match="gave up after 4 attempts; the last error: failure 4") as gave_up:
        Supervisor(job, restarts=3, delay=0, report=lambda _: None).run()
    assert job.runs == [1, 2, 3, 4]
    assert len(gave_up.value.attempts) == 4


def test_stop_ends_the_wait_for_the_next_restart():
    failed = threading.Event()
    supervisor = Supervisor(Failing(9), restarts=9, delay=3600, report=lambda _: failed.set())
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


def test_ctrl_c_is_not_taken_for_a_failure_where_the_tidying_up_fails():
    def interrupted(number: int) -> None:
        try:
            raise KeyboardInterrupt
        finally:
            raise OSError("the connection is gone")

    with pytest.raises(KeyboardInterrupt):
        Supervisor(interrupted, restarts=3, delay=0).run()
