"""Faults with a name: crash this batch at that point, once."""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Literal

from labs.pipeline import fault_points
from labs.pipeline.fault_points import FAULT_POINTS

JOB_MARK = "LABS_JOB"  # set to the process id in the environment of a job process, and of nobody else


class InjectedCrash(RuntimeError):
    """The crash that a fault caused by raising."""


@dataclass(frozen=True)
class Fault:
    """Strike when batch `batch` reaches `point`: raise, or SIGKILL or SIGSTOP ("pause") the whole job process group."""

    point: str
    batch: int
    action: Literal["raise", "kill", "pause"] = "raise"

    def __post_init__(self):
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
        return cls(match[1], int(match[2]), match[3] or "raise")

    @property
    def name(self) -> str:
        return self.point

    def __str__(self) -> str:
        return f"{self.point}@{self.batch}:{self.action}"

    def strike(self) -> None:
        if self.action == "raise":
            raise InjectedCrash(f"crashed on purpose: batch {self.batch} at {self.point}")
        if os.environ.get(JOB_MARK) != str(os.getpid()) or os.getpgrp() != os.getpid():
            raise RuntimeError("a fault signals job processes only, and this is not one: see labs.faults.JobProcess")
        os.killpg(os.getpgrp(), signal.SIGKILL if self.action == "kill" else signal.SIGSTOP)


@contextmanager
def armed(*faults: Fault) -> Iterator[list[Fault]]:
    """Arm the faults, each for one strike; yields the list of those that have struck."""
    waiting, struck = list(faults), []

    def listen(point: str, batch_id: int) -> None:
        for fault in waiting:
            if (fault.point, fault.batch) == (point, batch_id):
                waiting.remove(fault)
                struck.append(fault)
                fault.strike()

    if fault_points.listener:
        raise RuntimeError("faults are armed already; disarm those first")
    fault_points.listener = listen if faults else None
    try:
        yield struck
    finally:
        fault_points.listener = None
