"""A Python process that carries out runs of students' code, one after the other, each from a file of JSON.

One that holds a Spark is kept for the next run if the last one returned: it takes seconds to start, and the student
waits for it. It ends with this process, or with the first run that does not return.
"""

from __future__ import annotations

import json
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any

from labs.equipment.child_environment import for_python
from labs.equipment.child_process import ChildProcess


class Interpreter:
    """`python -m labs.exercises.checker.student`, with a directory of its own that it leaves nothing outside of."""

    def __init__(self) -> None:
        self._directory, self._runs, self._output_start = Path(tempfile.mkdtemp(prefix="labs-student-")), 0, 0
        temporary = self._directory / "tmp"  # its own, because a Spark that is killed cannot tidy up what it left there
        temporary.mkdir()
        self.process = ChildProcess(
            [sys.executable, "-m", "labs.exercises.checker.student", str(self._directory)],
            self._directory / "output",
            leftovers=self._directory,
            env=for_python(TMPDIR=str(temporary), PYTHONSAFEPATH=""),  # a solution may import what is beside it
        )

    def submit(self, spec: dict[str, Any]) -> None:
        """Have it carry out a run."""
        self._runs += 1
        self._output_start = self.process.log_file.stat().st_size
        draft = self._directory / "draft"
        draft.write_text(json.dumps(spec))
        draft.rename(self._directory / f"spec-{self._runs}.json")

    def printed(self) -> int:
        """Return how many bytes this run has printed."""
        return self.process.log_file.stat().st_size - self._output_start

    def tail(self, size: int = 2_000) -> str:
        """Return the end of what this run has printed."""
        with self.process.log_file.open("rb") as file:
            file.seek(max(self._output_start, self.process.log_file.stat().st_size - size))
            return file.read().decode(errors="replace")

    def close(self) -> None:
        """End the process and what it started, and delete its directory."""
        self.process.kill()
        shutil.rmtree(self._directory, ignore_errors=True)


IDLE: list[Interpreter] = []


def end_idle() -> None:
    """End those that wait for a next run."""
    while IDLE:
        IDLE.pop().close()


def take(warm: bool) -> Interpreter:
    """Return an interpreter: with `warm`, one that has served before if there is one that lives."""
    while warm and IDLE:
        interpreter = IDLE.pop()
        if interpreter.process.pid is not None:
            return interpreter
        interpreter.close()
    return Interpreter()
