"""Faults for what runs in Spark's tasks, in processes that Spark started: armed by a file, since they share no memory.

The process that strikes is a Python worker of the lab's own Spark. It kills or freezes itself, or kills the job that it
works for: then it is for a moment a task whose driver is gone. Or all of them freeze, it last.
"""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from labs.faults.fault import JOB_MARK

ANY_RUN = "any"
How = Literal["worker", "job", "freeze"]


@dataclass(frozen=True)
class TaskFaults:
    """What a sink in a task calls at its points. `directory` is one that all processes of the machine share."""

    directory: str

    def __call__(self, point: str, epoch: int) -> None:
        armed = Path(self.directory, point)
        if not armed.exists():
            return
        how, first, run = armed.read_text().split()
        if epoch < int(first) or run not in (ANY_RUN, _run()):
            return
        if how != "worker" and JOB_MARK not in os.environ:
            return  # a task of somebody else's, which was slow
        try:
            armed.rename(Path(self.directory, f"{point}.struck"))  # one of the tasks that come here at once succeeds
        except FileNotFoundError:
            return
        Path(self.directory, f"{point}.process").write_text(str(os.getpid()))
        _strike(how)

    @contextlib.contextmanager
    def armed(self, point: str, how: How = "worker", first_epoch: int = 0, run: str = ANY_RUN) -> Iterator[Path]:
        """Arm it for one strike at `point`, in `first_epoch` or later; yields the path that exists once it struck.

        Only tasks of this `run` of a query are struck: one of an earlier run may still be about to open.
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
    from pyspark import TaskContext  # only tasks come here

    context = TaskContext.get()
    return context.getLocalProperty("spark.jobGroup.id") if context else None


def _strike(how: str) -> None:
    if how == "worker":
        os.kill(os.getpid(), signal.SIGKILL)
    elif job := os.environ.get(JOB_MARK):  # it leads the group of Python and Spark's JVM
        os.killpg(int(job), signal.SIGKILL if how == "job" else signal.SIGSTOP)
        if how == "freeze":
            os.killpg(0, signal.SIGSTOP)  # the group of this worker and its like
    else:
        raise RuntimeError("a fault signals job processes only, and this task belongs to none")
