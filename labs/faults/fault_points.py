"""Named faults: crash a batch at a point, once.

A `Fault` is armed in the process that it strikes. `TaskFaults` arms a fault by a file, for processes that share no
memory with the test: the Python workers that Spark starts for its tasks, and a job that runs already (see
`labs.faults.job.JobProcess`). The process that reaches the point strikes: it kills itself ("worker"); or it kills the
job that it belongs to ("job"), and a worker then continues for a moment without a driver; or it freezes the job, and
then itself ("freeze").
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Protocol, cast

import psutil

from exactly_once_kafka.points import ALL_POINTS, FAULT_POINTS

Action = Literal["raise", "kill", "pause"]

JOB_MARK = "LABS_JOB"  # environment variable with the process id of a job, set in the job and what it starts
JOB_POINTS = "LABS_JOB_POINTS"  # environment variable of a job with the directory in which its faults are armed


class InjectedCrash(RuntimeError):
    """The crash that a fault caused by raising."""


@dataclass(frozen=True)
class Fault:
    """Strike when batch `batch` reaches `point`: raise, or SIGKILL or SIGSTOP ("pause") the whole job process group."""

    point: str
    batch: int
    action: Action = "raise"

    def __post_init__(self) -> None:
        if self.point not in ALL_POINTS:
            raise ValueError(f"no fault point {self.point!r}; there are {', '.join(FAULT_POINTS)}")
        if self.action not in ("raise", "kill", "pause"):
            raise ValueError(f"a fault can raise, kill or pause, not {self.action!r}")

    @classmethod
    def parse(cls, text: str) -> Fault:
        """Read `POINT@BATCH` or `POINT@BATCH:ACTION`. Raises ValueError."""
        match = re.fullmatch(r"(\w+)@(\d+)(?::(\w+))?", text)
        if not match:
            raise ValueError(f"a fault is written POINT@BATCH or POINT@BATCH:ACTION, not {text!r}")
        return cls(match[1], int(match[2]), cast(Action, match[3] or "raise"))

    @property
    def name(self) -> str:
        return self.point

    def __str__(self) -> str:
        return f"{self.point}@{self.batch}:{self.action}"

    def strike(self) -> None:
        if self.action == "raise":
            raise InjectedCrash(f"crashed on purpose: batch {self.batch} at {self.point}")
        if os.environ.get(JOB_MARK) != str(os.getpid()) or os.getpgrp() != os.getpid():
            raise RuntimeError(
                "a fault signals job processes only, and this is not one: see labs.faults.job.JobProcess"
            )
        if self.action == "kill":
            os.killpg(os.getpgrp(), signal.SIGKILL)
        else:
            _pause_group()


def _pause_group() -> None:
    """SIGSTOP every process of this job; the calling thread stops at once.

    A SIGSTOP for the group would be handled by the main thread when that is next scheduled; until then, the calling
    thread would continue, and commit.
    """
    for process in psutil.Process().children(recursive=True):
        with contextlib.suppress(ProcessLookupError):
            if os.getpgid(process.pid) == os.getpgrp():
                os.kill(process.pid, signal.SIGSTOP)
    signal.pthread_kill(threading.get_ident(), signal.SIGSTOP)


class Armable(Protocol):
    """A fault that can be armed: it strikes when batch `batch` reaches `point`."""

    @property
    def point(self) -> str: ...

    @property
    def batch(self) -> int: ...

    def strike(self) -> None: ...


class FaultPoints:
    """The function that a sink calls at its fault points (`points=`); a fault armed for that point and batch strikes.

    points = FaultPoints()
    sink = ExactlyOnceKafkaSink(..., points=points)
    with points.armed(Fault("after_commit", 2)) as struck:
        ...
    """

    def __init__(self) -> None:
        self._waiting: list[Armable] = []
        self._struck: list[Armable] = []

    def __call__(self, point: str, batch_id: int) -> None:
        for fault in list(self._waiting):
            if (fault.point, fault.batch) == (point, batch_id):
                self._waiting.remove(fault)
                self._struck.append(fault)
                fault.strike()

    @contextmanager
    def armed(self, *faults: Armable) -> Iterator[list[Armable]]:
        """Arm the faults, each for one strike; yield the list of those that have struck."""
        if self._waiting:
            raise RuntimeError("faults are armed already; disarm those first")
        self._waiting, self._struck = list(faults), []
        try:
            yield self._struck
        finally:
            self._waiting = []


ANY_RUN = "any"
How = Literal["worker", "job", "freeze"]


@dataclass(frozen=True)
class TaskFaults:
    """The function that a sink in a task or a job calls at its fault points. Files in `directory` arm the faults."""

    directory: str

    def __call__(self, point: str, epoch: int) -> None:
        armed = Path(self.directory, point)
        if not armed.exists():
            return
        how, first, run = armed.read_text().split()
        if epoch < int(first) or run not in (ANY_RUN, _run()):
            return
        if how != "worker" and JOB_MARK in os.environ and not _job_runs():
            return  # a task whose job has been killed already
        try:
            armed.rename(Path(self.directory, f"{point}.struck"))  # only one of several tasks succeeds
        except FileNotFoundError:
            return
        Path(self.directory, f"{point}.process").write_text(str(os.getpid()))
        _strike(how)

    @contextlib.contextmanager
    def armed(self, point: str, how: How = "worker", first_epoch: int = 0, run: str = ANY_RUN) -> Iterator[Path]:
        """Arm one strike at `point`, in `first_epoch` or later; yield the path that exists once it has struck.

        `how` says what it does, as in the module's docstring. With `run`, the id of a query's run, it strikes only
        tasks of that run: a task of an earlier run may still begin.
        """
        struck = Path(self.directory, f"{point}.struck")
        struck.unlink(missing_ok=True)
        waiting = Path(self.directory, f"{point}.new")
        waiting.write_text(f"{how} {first_epoch} {run}")
        waiting.rename(Path(self.directory, point))
        try:
            yield struck
        finally:
            Path(self.directory, point).unlink(missing_ok=True)

    def process(self, point: str) -> int:
        """Return the id of the process that struck at `point`."""
        return int(Path(self.directory, f"{point}.process").read_text())


def _run() -> str | None:
    from pyspark import TaskContext  # only processes with Spark come here

    context = TaskContext.get()
    return context.getLocalProperty("spark.jobGroup.id") if context else None


def _job_runs() -> bool:
    """Tell whether this task's job still runs: a task continues for a moment after its job was killed."""
    try:
        os.killpg(int(os.environ[JOB_MARK]), 0)
    except ProcessLookupError:
        return False
    return True


def _strike(how: str) -> None:
    if how == "worker":
        os.kill(os.getpid(), signal.SIGKILL)
    elif how == "freeze" and os.environ.get(JOB_MARK) == str(os.getpid()):
        _pause_group()
    elif job := os.environ.get(JOB_MARK):  # it leads the group of Python and Spark's JVM
        os.killpg(int(job), signal.SIGKILL if how == "job" else signal.SIGSTOP)
        if how == "freeze":
            os.killpg(0, signal.SIGSTOP)  # the group of the Python workers, this one included
    else:
        raise RuntimeError("a fault signals job processes only, and this task belongs to none")
