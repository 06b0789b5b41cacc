"""A process that runs students' code, one run after the other, with limits of time, memory and output.

A file of JSON describes each run. A process with a Spark is kept for the next run if the last one returned, since Spark
takes seconds to start and the student waits. It ends with this process, or with a run that does not return.
"""

from __future__ import annotations

import atexit
import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from labs.equipment.child_process import ChildProcess, ending_of, for_python, resident_bytes
from labs.equipment.waiting import eventually
from labs.exercises.checker.crash_points import NOT_JUDGED, NOT_WRITTEN, Crash, TornJournal, read_journal


class Interpreter:
    """The process `python -m labs.exercises.checker.student`, with a directory of its own for all of its files."""

    def __init__(self) -> None:
        self._directory, self._runs, self._output_start = Path(tempfile.mkdtemp(prefix="labs-student-")), 0, 0
        temporary = self._directory / "tmp"  # its own, because a killed Spark leaves files there
        temporary.mkdir()
        self.process = ChildProcess(
            [sys.executable, "-m", "labs.exercises.checker.student", str(self._directory)],
            self._directory / "output",
            leftovers=self._directory,
            env=for_python(TMPDIR=str(temporary), PYTHONSAFEPATH=""),  # a solution may import what is beside it
        )

    def submit(self, spec: dict[str, Any]) -> None:
        """Start a run."""
        self._runs += 1
        self._output_start = self.process.log_file.stat().st_size
        draft = self._directory / "draft"
        draft.write_text(json.dumps(spec))
        draft.rename(self._directory / f"spec-{self._runs}.json")

    def printed(self) -> int:
        """Return how many bytes this run has printed."""
        return self.process.log_file.stat().st_size - self._output_start

    def tail(self, size: int = 2_000) -> str:
        """Return the last part of this run's output."""
        with self.process.log_file.open("rb") as file:
            file.seek(max(self._output_start, self.process.log_file.stat().st_size - size))
            return file.read().decode(errors="replace")

    def close(self) -> None:
        """End the process and its children, and delete its directory."""
        self.process.kill()
        shutil.rmtree(self._directory, ignore_errors=True)


IDLE: list[Interpreter] = []


def end_idle() -> None:
    """End the processes that wait for another run."""
    while IDLE:
        IDLE.pop().close()


atexit.register(end_idle)  # which also deletes their directories


def take(warm: bool) -> Interpreter:
    """Return an interpreter; with `warm`, one that has served before, if one still runs."""
    while warm and IDLE:
        interpreter = IDLE.pop()
        if interpreter.process.pid is not None:
            return interpreter
        interpreter.close()
    return Interpreter()


LAST_LINES = 5


@dataclass(frozen=True)
class Limits:
    """Seconds for each phase, megabytes of memory of the process and its children, megabytes of output."""

    seconds: float = 10  # of the student's function
    load_seconds: float = 8  # to execute the file
    bench_seconds: float = 90  # to start the interpreter, and Spark where the exercise has it
    memory: int = 1024
    output: int = 4


@dataclass(frozen=True)
class Run:
    """One run of the student's code, by its ending.

    "returned", "killed" (by the checker, as planned), "hung", "out of memory", "too much output", "crashed",
    "syntax error", "import error", "missing" (function), "signature", "exited" (sys.exit), "vanished";
    "could not be judged" if the run left no evidence, or the checker's own tools failed: no success, and no failure.
    """

    ending: str
    detail: str
    output: str  # its last lines
    events: list[dict[str, Any]]

    @property
    def well(self) -> bool:
        """Tell whether the code returned, or was killed on purpose."""
        return self.ending in ("returned", "killed")

    def reached(self, point: str) -> int:
        """Return how often the code came to a crash point."""
        return sum(event["kind"] == "point" and event["what"] == point for event in self.events)

    @property
    def judged(self) -> bool:
        """Tell whether the run says anything about the code."""
        return self.ending != NOT_JUDGED

    @property
    def error(self) -> str:
        """Return the name of the exception that ended the run, if one did."""
        return str(self.events[-1].get("error", "")) if self.ending in ("crashed", "import error") else ""

    @property
    def did_nothing(self) -> bool:
        """Tell whether the code returned without having used anything that it was handed."""
        return self.ending == "returned" and not any(event["kind"] == "point" for event in self.events)


class StudentProcess:
    """Runs one version of the student's code, any number of times. `directory` is for the files of the runs.

    With `warm`, a process whose run returned serves the next run too, of this code or of other code.
    """

    def __init__(self, source: str, shown_as: str, entry: str, directory: Path, limits: Limits, warm: bool = False):
        self.directory, self._entry, self._shown_as, self.limits = directory, entry, shown_as, limits
        self.file, self._warm, self._place = directory / "student_source.py", warm, directory
        self.file.write_text(source, "utf-8", "backslashreplace")  # a notebook may hold lone surrogates
        self._runs = 0

    def start_anew(self, scenario: int) -> None:
        """Let the next runs work in an empty directory."""
        self._place = self.directory / f"scenario-{scenario}"
        self._place.mkdir()

    def run(self, function: str, tools: dict[str, Any], began: float, crash: Crash | None = None) -> Run:
        """Run the function once, and kill it at `crash` if it gets there."""
        self._runs += 1
        place = self.directory / f"run-{self._runs}"
        place.mkdir()
        interpreter = take(self._warm)
        try:
            interpreter.submit(
                {
                    "directory": str(self._place),
                    "file": str(self.file),
                    "shown_as": self._shown_as,
                    "journal": str(place / "journal"),
                    "stack": str(place / "stack"),
                    "began": began,
                    "function": function,
                    "entry": self._entry,
                    "tools": tools,
                    "crash": {"point": crash.point, "nth": crash.nth} if crash else None,
                }
            )
            try:
                exceeded = self._watch(interpreter, place)
                serves_on = self._warm and not exceeded and _ending(read_journal(place / "journal")) == "returned"
                if not serves_on:
                    interpreter.process.kill()
                run = self._judge(interpreter, exceeded, place)
            except TornJournal as error:
                interpreter.process.kill()
                return Run(NOT_JUDGED, str(error), "", [])
            if serves_on:
                IDLE.append(interpreter)
            return run
        finally:
            if interpreter not in IDLE:
                interpreter.close()

    def _watch(self, interpreter: Interpreter, place: Path) -> tuple[str, str] | None:
        """Wait for the end of the run; return the limit that it exceeded, as (ending, detail), if any.

        Raises TornJournal.
        """
        phase, since, known = "start", time.monotonic(), 0
        limits, process = self.limits, interpreter.process
        seconds = {"load": limits.load_seconds, "call": limits.seconds}
        while True:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(0.05)
                return None
            events = read_journal(place / "journal")
            if len(events) < known:
                raise TornJournal("events are missing from the journal of the run; did the code delete or empty it?")
            known = len(events)
            if _ending(events):
                return None
            phases = [event["what"] for event in events if event["kind"] == "phase"]
            if phases and " ".join(phases) != phase:
                phase, since = " ".join(phases), time.monotonic()
            now = phases[-1] if phases else "start"
            allowed = seconds.get(now, limits.bench_seconds)
            if time.monotonic() - since > allowed:
                if now not in seconds:
                    return NOT_JUDGED, f"the environment of the code was not ready within {allowed:g} s ({now})"
                at = _where_it_hangs(process.group, place, self._shown_as)
                return "hung", f"it did not end within {allowed:g} s{at}"
            if interpreter.printed() > limits.output * 1e6:
                return "too much output", f"it printed more than {limits.output} MB"
            if (used := resident_bytes(process.group) / 1e6) > limits.memory:
                return "out of memory", f"it used {used:,.0f} MB; {limits.memory:,} MB are allowed"

    def _judge(self, interpreter: Interpreter, exceeded: tuple[str, str] | None, place: Path) -> Run:
        """Tell how the run ended. Raises TornJournal."""
        events, code = read_journal(place / "journal"), interpreter.process.exit_code
        if events and (events[0]["kind"], events[0]["what"]) != ("phase", "load"):
            raise TornJournal("the journal of the run lacks its beginning; did the code empty it?")
        lines = interpreter.tail().splitlines()[-LAST_LINES:]
        output = "\n".join(line[:200] for line in lines if line.strip())
        last = events[-1] if events else {"kind": "", "what": ""}
        if exceeded:
            ending, detail = exceeded
        elif last["kind"] == "end":
            ending, detail = last["ending"], last["what"]
        elif last["kind"] == "kill" and code == -signal.SIGKILL:
            ending, detail = "killed", last["what"]
        elif code == NOT_WRITTEN:
            raise TornJournal(
                "the journal of the run could not be written: is the disk full, or did the code close it?"
            )
        else:
            assert code is not None  # a process that goes on has noted how its run ended
            hint = " (os._exit?)" if code >= 0 else ""
            ending, detail = "vanished", f"the process {ending_of(code)}{hint}, and your function had not returned"
        return Run(ending, detail, output, events)


def _ending(events: list[dict[str, Any]]) -> str | None:
    """Return how the run ended, by its own last event; None if there is none yet."""
    return events[-1]["ending"] if events and events[-1]["kind"] == "end" else None


def _where_it_hangs(pid: int, place: Path, shown_as: str) -> str:
    """Ask the process for its stack, and return the line of the student's file that it is at."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGUSR1)
    pattern = re.compile(rf'File "{re.escape(shown_as)}", line (\d+)')
    with contextlib.suppress(TimeoutError):
        found = eventually(lambda: pattern.search((place / "stack").read_text()), timeout=1)
        return f"; it was at line {found[1]}"
    return ""
