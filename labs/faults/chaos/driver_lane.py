"""Chaos in the driver: the job process is killed at random moments and at named points, frozen, and replaced.

The lane is the supervisor too: whenever the job is gone, for whatever reason, it starts it again.
"""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import psutil

from exactly_once_kafka.points import FAULT_POINTS
from labs.faults.chaos.journal import Journal, Strike
from labs.faults.chaos.lane import Lane
from labs.faults.fault import Fault
from labs.faults.job import JobProcess
from labs.faults.spare import HotSpare

KINDS = {
    "driver-kill": "SIGKILL of the driver, at a random moment",
    "driver-point": "SIGKILL of the driver, at a random fault point",
    "driver-pause": "SIGSTOP of the driver past its transaction's timeout, then SIGCONT; half of the time "
    "a successor has taken over meanwhile",
    "executor-kill": "SIGKILL of an executor",
}
STARTING = 120.0  # seconds that a driver may take to its first batch
WARMING = 25  # batches, of half a second at least, in which the next spare gets warm
TOO_MANY = 8  # drivers in a row that end by themselves before their first batch


class DriverLane(Lane):
    """Runs the job (`options` as for JobProcess) until `stop`, and ends each of its lives in another way.

    `timeout` is the transaction timeout in seconds. What the drivers print is appended to the file `log`. A
    driver-point is one of `points`. With `spare`, each driver but the first was kept warm.
    """

    lane_name = "driver"

    def __init__(
        self,
        kinds: tuple[str, ...],
        seed: int,
        journal: Journal,
        options: Mapping[str, Any],
        timeout: float,
        log: Path,
        points: tuple[str, ...] = FAULT_POINTS,
        spare: bool = False,
    ):
        super().__init__(kinds, seed, journal)
        self._options = {name: value for name, value in options.items() if name != "environment"}
        self._environment = options.get("environment")
        self._timeout, self._log, self._points = timeout, log, points
        self._stopped, self._with_spare = False, spare
        self._spare: HotSpare | None = None
        self._failed_starts = 0
        self._killed: JobProcess | None = None

    def stop(self) -> None:
        """End the job for good, and the lane with it. Call it when the lane is calm and the results are there."""
        self.calm()
        self._stopped = True
        if self.ident:
            self.join()

    def work(self) -> None:
        with contextlib.ExitStack() as until_the_end:
            if self._with_spare:
                report = lambda words: self.journal.note("no-spare", words, injected=False)  # noqa: E731
                self._spare = until_the_end.enter_context(HotSpare(self._environment, report))
            while not self._stopped:
                self._run_driver()

    def _start_driver(self, *faults: Fault) -> JobProcess:
        if self._spare:
            return self._spare.take(faults, **self._options)
        return JobProcess(faults, self._environment, **self._options)

    def _run_driver(self) -> None:
        """Start a driver and strike it until it is gone."""
        kind = self._draw(self.kinds)
        fault = self._draw_point() if kind == "driver-point" else None
        job = self._start_driver(*([fault] if fault else []))
        try:
            while job.running and not self._stopped:
                job = self._strike(kind, job, fault)
                # A point must be known before the start, so it is no choice for a driver that is running.
                kind = self._draw(tuple(each for each in self.kinds if each != "driver-point"))
            self._note_exit(job, fault)
        finally:
            self._end(job)

    def _draw(self, kinds: tuple[str, ...]) -> str | None:
        return self.random.choice(kinds) if kinds and not self.is_calm else None

    def _draw_point(self) -> Fault:
        point, later = self.random.choice(self._points), self.random.randint(1, 4)
        return Fault(point, self._next_batch() + later + (WARMING if self._with_spare else 0), "kill")

    def _strike(self, kind: str | None, job: JobProcess, fault: Fault | None) -> JobProcess:
        """Let the driver work for a moment, then strike; return the driver that goes on."""
        early = kind == "driver-kill" and self.random.random() < 0.25
        if not early:
            self.wait(STARTING, until=lambda: (_works(job) and self._has_warm_spare()) or self._is_over(job))
        self.wait(self.random.uniform(0.2, 10 if early else 5), until=lambda: self._is_over(job))
        if kind is None or self.is_calm or not job.running:
            self.wait(1, until=lambda: self._is_over(job))
        elif kind == "driver-point" and fault:
            # A batch without rows does not come to every point.
            self.wait(STARTING, until=lambda: self._is_over(job) or self._next_batch() > fault.batch + 1)
        elif kind == "driver-kill":
            self.journal.note(kind, "" if _works(job) else "before its first batch")
            self._killed = job
            job.kill()
        elif kind == "driver-pause":
            return self._pause(job)
        else:
            self._kill_executor(job)
        return job

    def _has_warm_spare(self) -> bool:
        """Tell whether the next driver is warm, if one is kept: struck too soon after the last, each start is cold."""
        if self._spare is None:
            return True
        waiting = self._spare.waiting
        return waiting is not None and (waiting.is_warm or not waiting.running)

    def _is_over(self, job: JobProcess) -> bool:
        return self._stopped or not job.running

    def _note_exit(self, job: JobProcess, fault: Fault | None) -> None:
        """Note how a driver ended that was not killed from outside."""
        if job.running or job is self._killed:
            return
        self._failed_starts = 0 if fault or _works(job) else self._failed_starts + 1
        if fault and job.exit_code == -signal.SIGKILL:
            self.journal.note("driver-point", f"{fault.point}@{fault.batch}")
        else:
            self.journal.note("driver-ended", job.last_line(), injected=False)
        if self._failed_starts == TOO_MANY:
            raise RuntimeError(f"the driver ended {TOO_MANY} times before its first batch; at last: {job.last_line()}")

    def _pause(self, job: JobProcess) -> JobProcess:
        """Freeze the driver until its transaction has timed out; return the driver that goes on from there."""
        with_successor = self.random.random() < 0.5
        detail = "with a successor" if with_successor else "no successor"
        with self.journal.strike("driver-pause", detail) as strike:
            job.pause()
            if not with_successor:
                self.wait(self._timeout + 3)
                job.resume()
                return job
            successor = self._start_driver()
            self.wait(STARTING, until=lambda: _works(successor) or self._is_over(successor))
            self._wake(job, strike)
        return successor

    def _wake(self, zombie: JobProcess, strike: Strike) -> None:
        zombie.resume()
        if self.wait(60, until=lambda: not zombie.running):
            strike.detail += f"; the old one: {zombie.last_line()}"
        else:
            strike.detail += "; the old one had nothing to write, and was killed"
        self._end(zombie)

    def _kill_executor(self, job: JobProcess) -> None:
        executors = sorted(job.executors(), key=lambda executor: executor.pid)
        if executors:
            victim = self.random.choice(executors)
            self.journal.note("executor-kill", f"one of {len(executors)}")
            with contextlib.suppress(psutil.NoSuchProcess):
                victim.kill()  # by its start time too: its id may be somebody else's by now
            batches = job.batches_done()
            self.wait(STARTING, until=lambda: job.batches_done() > batches + 1 or self._is_over(job))

    def _next_batch(self) -> int:
        offsets = Path(self._options["checkpoint"], "offsets")
        return max((int(file.name) for file in offsets.glob("[0-9]*")), default=-1) + 1

    def _end(self, job: JobProcess) -> None:
        job.resume()
        with self._log.open("a") as log:
            log.write(f"--- driver {job.pid}\n{job.output()}\n")
        job.close()


def _works(job: JobProcess) -> bool:
    return job.batches_done() > 0
