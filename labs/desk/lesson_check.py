"""`check` for lessons: the checker judges the student's code, and each verdict is noted on the desk.

While the checker works, one display below the cell shows the current scenario and the verdicts so far. The thread that
executes the cell updates it in place, and empties it at the end: so an executed notebook does not depend on how long
the check took. Then the report follows.

The sink that passed in lesson 07 is kept on the desk, and later lessons use it (`my_sink`). Guarantee: an existing file
is never overwritten. Where there is no desk, or no sink has passed, the lessons go on with the reference
solution, and say so.
"""

from __future__ import annotations

import importlib
import linecache
import socket
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from IPython.core.getipython import get_ipython
from IPython.display import display

from labs.desk.progress import CHECKED, notes_of
from labs.exercises.checker.check import check as judge
from labs.exercises.checker.check import find_exercise
from labs.exercises.checker.report import Report
from labs.exercises.checker.scenario import Exercise, Finding, Grade
from labs.exercises.checker.student_module import read_source, solution_of

SINK_EXERCISE = "exactly_once_sink"
SINK_FILE = "my_sink.py"  # on the desk
SIGNS = {Grade.PASSED: "✓", Grade.FAILED: "✕", Grade.UNKNOWN: "?", Grade.NOT_RUN: "–"}


class CheckProgress:
    """The display of one check. The checker calls `starting` and `judged`."""

    def __init__(self, exercise: Exercise):
        self._exercise, self._lines = exercise, list[str]()
        in_kernel = getattr(get_ipython(), "kernel", None) is not None
        self._handle: Any = display({}, raw=True, display_id=True) if in_kernel else None
        self._show("getting ready")

    def starting(self, scenario: str) -> None:
        self._show(f"{scenario} ({len(self._lines) + 1} of {len(self._exercise.scenarios)})")

    def judged(self, finding: Finding) -> None:
        why = f" ({finding.reason})" if finding.grade in (Grade.FAILED, Grade.UNKNOWN) and finding.reason else ""
        self._lines.append(f"  {SIGNS[finding.grade]} {finding.scenario}: {finding.grade}{why}")

    def close(self) -> None:
        """Empty the display."""
        if self._handle is not None:
            self._handle.update({}, raw=True)

    def _show(self, under_way: str) -> None:
        if self._handle is not None:
            name, seconds = self._exercise.name, self._exercise.seconds
            head = f"checking {name}: about {seconds} s if all goes well, more on a busy machine"
            text = "\n".join([head, *self._lines, f"  … {under_way}"])
            self._handle.update({"text/plain": text}, raw=True)


class Executed:
    """The notebook's cells in the order in which they were executed.

    `In` has them too, unless the notebook is run without a history, as nbval does.
    """

    def __init__(self) -> None:
        self.cells: list[str] = []

    def watch(self, shell: Any) -> None:
        """Keep what `shell` executes from now on; None: this is no notebook, and has no cells."""
        if shell is not None:
            self.cells += _compiled_cells()
            shell.events.register("pre_run_cell", self._keep)

    def _keep(self, info: Any) -> None:
        self.cells.append(info.raw_cell or "")


def _compiled_cells() -> list[str]:
    """Return the sources that IPython keeps of the executed cells, for its tracebacks."""
    known = [entry for entry in linecache.cache.values() if len(entry) > 2]
    return ["".join(lines) for _, modified, lines, *_ in known if modified is None]


executed = Executed()
executed.watch(get_ipython())


def check(
    name: str,
    source: str | Path | Iterable[str] | None = None,
    *,
    servers: str | None = None,
    fail_fast: bool = False,
) -> Report:
    """Judge the code for exercise `name` as `labs.exercises.checker.check.check` does, and note the verdict."""
    if source is not None and not isinstance(source, str | Path):
        source = [*source, *executed.cells]
    report = _judge(name, source, servers, fail_fast)
    if name == SINK_EXERCISE and report.passed:
        keep_sink(read_source(name, source).text)
    notes_of().add(CHECKED, exercise=name, verdict=str(report.grade), source=report.source)
    return report


def own_or_reference(attempt: Report, *, servers: str | None = None) -> Report:
    """Return the attempt if it passed. Otherwise show the reference solution, judge it, and return that report."""
    if attempt.passed:
        print("Yours is green.")
        return attempt
    solution = solution_of(attempt.exercise)
    print(f"The reference solution of {attempt.exercise}, to compare yours with:\n\n{solution.read_text()}")
    return _judge(attempt.exercise, solution, servers)


def _judge(
    name: str, source: str | Path | Iterable[str] | None, servers: str | None, fail_fast: bool = False
) -> Report:
    """Judge, and show the progress. If the bench is closed, the checker starts a Kafka of its own."""
    progress = CheckProgress(find_exercise(name))
    try:
        return judge(
            name,
            source,
            servers=servers if servers and _listens(servers) else None,
            fail_fast=fail_fast,
            starting=progress.starting,
            judged=progress.judged,
        )
    finally:
        progress.close()


def _listens(servers: str) -> bool:
    """Tell whether a broker answers: after "Run All" the bench is closed, and a student may repeat the check."""
    host, _, port = servers.partition(",")[0].rpartition(":")
    try:
        with socket.create_connection((host.strip("[]"), int(port)), timeout=2):
            return True
    except (OSError, ValueError):
        return False


def reference(name: str, function: str) -> Callable[..., object]:
    """Return a function of the reference solution, so that the lesson can go on if the student's own failed."""
    return getattr(importlib.import_module(f"labs.exercises.solutions.{name}"), function)


def keep_sink(text: str) -> None:
    """Write a sink that has passed to the desk, unless another one is there, and print what was done."""
    notes = notes_of()
    file = notes.path.with_name(SINK_FILE)
    if not notes.kept:
        return
    if not file.exists():
        file.write_text(text.rstrip("\n") + "\n", "utf-8")
        print(f"Kept as {SINK_FILE}: later lessons use it.")
    elif file.read_text("utf-8", errors="replace").strip() != text.strip():
        print(f"{SINK_FILE} on your desk is another one, and was not changed. Delete it to have this one kept.")


def my_sink() -> str:
    """Return the file of the student's sink, or of the reference solution where there is none, and print which."""
    notes = notes_of()
    file = notes.path.with_name(SINK_FILE)
    if notes.kept and file.is_file():
        print(f"{SINK_FILE} of your desk")
        return str(file)
    print("the reference solution of lesson 07")
    return str(solution_of(SINK_EXERCISE))
