"""What a lesson has the student's code judged by: the checker, with a note of each verdict on the desk."""

from __future__ import annotations

import importlib
import linecache
import socket
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from IPython.core.getipython import get_ipython

from labs.desk.check_progress import CheckProgress
from labs.desk.notes import CHECKED, notes_of
from labs.exercises.checker.check import check as judge
from labs.exercises.checker.check import find_exercise
from labs.exercises.checker.report import Report
from labs.exercises.checker.source_code import MARK, solution_of


class Executed:
    """The notebook's marked cells in the order in which they were executed.

    `In` has them too, but not where a notebook is run without a history, as nbval does.
    """

    def __init__(self) -> None:
        self.cells: list[str] = []

    def watch(self, shell: Any) -> None:
        """Keep what `shell` executes from now on; None is no notebook, and has no cells."""
        if shell is not None:
            self.cells += [text for text in _compiled_cells() if text.lstrip().startswith(MARK)]
            shell.events.register("pre_run_cell", self._keep)

    def _keep(self, info: Any) -> None:
        if (info.raw_cell or "").lstrip().startswith(MARK):
            self.cells.append(info.raw_cell)


def _compiled_cells() -> list[str]:
    """Return what was compiled in this process and is in no file: IPython keeps each cell so, for its tracebacks."""
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
    """Judge, and show meanwhile how far that is. Where the bench is closed, the checker starts a Kafka of its own."""
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
    """Tell whether anybody is there: "Run All" ends with a closed bench, and then the check is tried again."""
    host, _, port = servers.partition(",")[0].rpartition(":")
    try:
        with socket.create_connection((host.strip("[]"), int(port)), timeout=2):
            return True
    except (OSError, ValueError):
        return False


def reference(name: str, function: str) -> Callable[..., object]:
    """Return a function of the reference solution, for a lesson that goes on with it where the student's own failed."""
    return getattr(importlib.import_module(f"labs.exercises.solutions.{name}"), function)
