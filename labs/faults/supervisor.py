"""Restarts a job that fails, a fixed number of times after a fixed delay, as Flink's fixed-delay strategy does.

A `HotSpare` keeps a second driver warm, which takes over in a second or two instead of ten.

    def attempt(number):
        with spare.take(**options) as job:
            job.wait()

    with HotSpare() as spare:
        Supervisor(attempt, delay=0).run()

Guarantee: `take` always returns a job that has its options, even if that is a cold start, and at most one spare waits.
Limitations: a spare that is still warming up takes over when its session is ready, hardly sooner than a cold start; and
while it warms up, it shares the processors with the driver.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from labs.faults.fault_points import Fault
from labs.faults.job import JobFailed, JobProcess
from labs.pipeline.query.query_failure import why


@dataclass(frozen=True)
class Attempt:
    """One run: its `number` from 1, the `seconds` that it took, and the error that ended it (None: it succeeded)."""

    number: int
    seconds: float
    error: Exception | None

    def __str__(self) -> str:
        if self.error is None:
            return f"attempt {self.number}: finished"
        return f"attempt {self.number}: failed: {why(self.error)}"


class GaveUp(RuntimeError):
    """The job failed more often than it may be restarted. `attempts` tells what happened each time."""

    def __init__(self, attempts: list[Attempt]):
        self.attempts = attempts
        super().__init__(f"gave up after {len(attempts)} attempts; the last error: {why(attempts[-1].error)}")


class Supervisor:
    """Runs `job(attempt number)` until it returns, restarting it when it raises.

    It restarts the job at most `restarts` times, `delay` seconds after each failure. `report` is called with each
    attempt as it ends. A job that takes its process from a `HotSpare` is back in a second or two.
    """

    def __init__(
        self,
        job: Callable[[int], object],
        restarts: int = 3,
        delay: float = 10.0,
        report: Callable[[Attempt], object] = print,
    ):
        self._job, self._restarts, self._delay, self._report = job, restarts, delay, report
        self._stopped = threading.Event()

    def run(self) -> list[Attempt]:
        """Run to success or `stop()` and return the attempts. Raises GaveUp."""
        attempts: list[Attempt] = []
        while True:
            attempts.append(self._attempt(len(attempts) + 1))
            self._report(attempts[-1])
            if attempts[-1].error is None:
                return attempts
            if len(attempts) > self._restarts:
                raise GaveUp(attempts)
            if self._stopped.wait(self._delay):
                return attempts

    def stop(self) -> None:
        """Do not restart any more. An attempt that runs now is not stopped."""
        self._stopped.set()

    def _attempt(self, number: int) -> Attempt:
        started, error = time.monotonic(), None
        try:
            self._job(number)
        except Exception as raised:
            if _was_interrupted(raised):
                raise KeyboardInterrupt from raised
            error = raised
        return Attempt(number, time.monotonic() - started, error)


def _was_interrupted(error: BaseException | None) -> bool:
    """Tell whether Ctrl-C caused the error: a client that cleans up after Ctrl-C may fail with another error."""
    while error is not None:
        if isinstance(error, KeyboardInterrupt):
            return True
        error = error.__cause__ or error.__context__
    return False


LATEST = 20.0  # seconds after which the next spare is started even if the driver has not done its first batch
STEP = 0.1  # seconds between two checks of the driver


class HotSpare:
    """Keeps one JobProcess warm, in `environment`; `report` is called with a sentence if `take` finds no spare.

    The next spare is started when the driver that was taken has done its first batch or has ended, or after LATEST
    seconds: an earlier start would only take processor time from that driver. `close` kills the spare that waits, and
    no job that was taken.
    """

    def __init__(
        self, environment: Mapping[str, str] | None = None, report: Callable[[str], object] = lambda words: None
    ):
        self._environment, self._report = environment, report
        self._lock, self._taken, self._closed = threading.Lock(), 0, threading.Event()
        self._spare: JobProcess | None = None
        self._start_next(0)

    @property
    def waiting(self) -> JobProcess | None:
        """The spare that can be taken, warm or warming up; None until the next is started."""
        return self._spare

    def take(self, faults: tuple[Fault, ...] = (), **options: Any) -> JobProcess:
        """Return a job with these faults and options: the spare, or a cold start if there is none or it is dead."""
        if self._closed.is_set():
            raise RuntimeError("this HotSpare is closed: no job can be taken from it")
        with self._lock:
            spare, self._spare = self._spare, None
            self._taken += 1
            number = self._taken
        try:
            job = self._told(spare, faults, options) or JobProcess(faults, self._environment, **options)
        except BaseException:
            self._start_next(number)
            raise
        threading.Thread(target=self._follow, args=(job, number), name="hot-spare", daemon=True).start()
        return job

    def close(self) -> None:
        """End the spare that waits."""
        with self._lock:
            self._closed.set()
            if self._spare:
                self._spare.close()

    def __enter__(self) -> HotSpare:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _told(self, spare: JobProcess | None, faults: tuple[Fault, ...], options: dict[str, Any]) -> JobProcess | None:
        if spare is None:
            self._report("there was no spare yet: a cold start")
            return None
        try:
            spare.take_over(faults, **options)
            return spare
        except BaseException as error:
            spare.close()
            if not isinstance(error, JobFailed):
                raise
            self._report(f"{error}: a cold start")
            return None

    def _follow(self, job: JobProcess, number: int) -> None:
        """Start the next spare when the job has done its first batch, has ended, or takes too long."""
        deadline = time.monotonic() + LATEST
        while job.running and not job.batches_done() and time.monotonic() < deadline:
            if self._closed.wait(STEP):
                return
        self._start_next(number)

    def _start_next(self, number: int) -> None:
        with self._lock:
            if number == self._taken and not self._closed.is_set():
                self._spare = JobProcess(environment=self._environment, warm=True)
