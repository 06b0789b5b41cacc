"""Crash points inside a micro-batch: a fault strikes when batch N comes to its point, once.

A fault raises, and the query fails and is restarted in the same Spark; or it kills the process with its Spark.
"""

from __future__ import annotations

from typing import Literal

from labs.exercises.checker.crash_points import CrashPoints
from labs.faults.fault import InjectedCrash

BatchFault = tuple[str, int, Literal["raise", "kill"]]


class BatchPoints(CrashPoints):
    """Crash points that know which batch is being published."""

    batch_id = -1
    armed: list[BatchFault] = []  # noqa: RUF012  replaced for each round, never changed in the class

    def reach(self, point: str) -> None:
        self._reached[point] += 1
        self.journal.write("point", point)
        for fault in self.armed:
            if tuple(fault[:2]) == (point, self.batch_id):
                self.armed = [each for each in self.armed if each is not fault]
                if fault[2] == "kill":
                    self.strike(point)
                self.journal.write("kill", f"crash {point}(), batch {self.batch_id}")
                raise InjectedCrash(f"crashed on purpose: batch {self.batch_id} {point}")
