"""Restart what fails, a fixed number of times after a fixed delay, as Flink's fixed-delay strategy does."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

from labs.pipeline.query.query_failure import why


@dataclass(frozen=True)
class Attempt:
    """One run: `number` from 1, `seconds` it lasted, and the error that ended it (None: it succeeded)."""

    number: int
    seconds: float
    error: Exception | None

    def __str__(self) -> str:
        if self.error is None:
            return f"attempt {self.number}: finished"
        return f"attempt {self.number}: failed: {why(self.error)}"


class GaveUp(RuntimeError):
    """The job failed once more than it may be restarted. `attempts` tells what happened each time."""

    def __init__(self, attempts: list[Attempt]):
        self.attempts = attempts
        super().__init__(f"gave up after {len(attempts)} attempts; the last error: {why(attempts[-1].error)}")


class Supervisor:
    """Runs `job(attempt number)` until it returns, restarting it when it raises.

    At most `restarts` times, `delay` seconds after each failure (3 and 10 s as in the original lesson).
    `report` is told of each attempt as it ends. What a restart costs is the job's affair: one that takes its process
    from a `HotSpare` is back in a second or two.
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
        """Restart no more. What runs now is left to its own stop."""
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
    """Tell whether Ctrl-C is behind the error: tidying up after one, a client may fail itself, and raise that."""
    while error is not None:
        if isinstance(error, KeyboardInterrupt):
            return True
        error = error.__cause__ or error.__context__
    return False
