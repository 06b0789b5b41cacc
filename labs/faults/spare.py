"""Keep one driver warm beside the one that works, so that the next takes over in a second or two and not in ten.

    def attempt(number):
        with spare.take(**options) as job:
            job.wait()

    with HotSpare() as spare:
        Supervisor(attempt, delay=0).run()

Guarantee: `take` always returns a job that was told to go on, be it a cold one, and at most one spare waits. Where it
stops: a spare that is still getting warm takes over when its session is up, hardly sooner than a cold start; and while
it gets warm it shares the processors with the driver that works.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from typing import Any

from labs.faults.fault import Fault
from labs.faults.job import JobFailed, JobProcess

LATEST = 20.0  # seconds after which the next spare is started, whatever became of the driver's first batch
STEP = 0.1  # seconds between two looks


class HotSpare:
    """Keeps one JobProcess warm, in `environment`; `report` is told in words when one was not there to be taken.

    The next one is started when the driver that was taken has done its first batch: until then it would only take the
    processor away from it. Close it: it kills the spare that waits, and none that was taken.
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
        """The spare that can be taken, warm or getting warm; None until the next is started."""
        return self._spare

    def take(self, faults: tuple[Fault, ...] = (), **options: Any) -> JobProcess:
        """Return a job with these faults and options: the spare, or a cold start if there is none, or it is dead."""
        if self._closed.is_set():
            raise RuntimeError("the keeper of the hot spare is closed: no job can be taken from it")
        with self._lock:
            spare, self._spare = self._spare, None
            self._taken += 1
            number = self._taken
        job = self._told(spare, faults, options) or JobProcess(faults, self._environment, **options)
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
            self._report("no spare was there yet: a cold start")
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
        """Start the next spare when the job has done its first batch, is over, or takes too long."""
        deadline = time.monotonic() + LATEST
        while job.running and not job.batches_done() and time.monotonic() < deadline:
            if self._closed.wait(STEP):
                return
        self._start_next(number)

    def _start_next(self, number: int) -> None:
        with self._lock:
            if number == self._taken and not self._closed.is_set():
                self._spare = JobProcess(environment=self._environment, warm=True)
