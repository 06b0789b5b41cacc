"""Faults with a name: crash this batch at that point, once."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Literal, Protocol, cast

import psutil

from exactly_once_kafka.points import FAULT_POINTS

Action = Literal["raise", "kill", "pause"]

JOB_MARK = "LABS_JOB"  # set to the process id in the environment of a job process, and of nobody else


class InjectedCrash(RuntimeError):
    """The crash that a fault caused by raising."""


@dataclass(frozen=True)
class Fault:
    """Strike when batch `batch` reaches `point`: raise, or SIGKILL or SIGSTOP ("pause") the whole job process group."""

    point: str
    batch: int
    action: Action = "raise"

    def __post_init__(self) -> None:
        if self.point not in FAULT_POINTS:
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
    """Stop every process of this job, this thread's at once.

    A SIGSTOP for the group is taken by the main thread when that is next scheduled; the thread that asked for it would
    go on meanwhile, and commit.
    """
    for process in psutil.Process().children(recursive=True):
        with contextlib.suppress(ProcessLookupError):
            if os.getpgid(process.pid) == os.getpgrp():
                os.kill(process.pid, signal.SIGSTOP)
    signal.pthread_kill(threading.get_ident(), signal.SIGSTOP)


class Armable(Protocol):
    """What can be armed: it strikes when batch `batch` reaches `point`."""

    @property
    def point(self) -> str: ...

    @property
    def batch(self) -> int: ...

    def strike(self) -> None: ...


class FaultPoints:
    """What a sink calls at its fault points (`points=`): whatever is armed for that point and batch strikes there.

        points = FaultPoints()
        sink = ExactlyOnceKafkaSink(..., points=points)
        with points.armed(Fault("after_commit", 2)) as struck:
            ...

    A fault is whatever is `Armable`.
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
        """Arm the faults, each for one strike; yields the list of those that have struck."""
        if self._waiting:
            raise RuntimeError("faults are armed already; disarm those first")
        self._waiting, self._struck = list(faults), []
        try:
            yield self._struck
        finally:
            self._waiting = []
