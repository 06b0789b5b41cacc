"""Carry out a schedule of two-phase commit by hand: a job is a process, and the next one finds it dead."""

from __future__ import annotations

from labs.schedules.model.two_phase import TwoPhaseStage
from labs.schedules.replay.crash_player import CrashPlayer


class TwoPhasePlayer(CrashPlayer):
    """Jobs that prepare, decide and finish."""

    program, first = "labs.schedules.replay.two_phase_program", "driver 1"
    stage: TwoPhaseStage

    def place(self) -> dict[str, int]:
        return {"batch": self.checkpoint.noted + 1}

    def due(self) -> range:
        return range((self.checkpoint.noted + 1) * self.stage.rows)
