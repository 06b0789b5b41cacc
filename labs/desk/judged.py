"""What a lesson has the student's code judged by: the checker, with a note of each verdict on the desk."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterable
from pathlib import Path

from labs.desk.notes import CHECKED, notes_of
from labs.exercises.checker.check import check as judge
from labs.exercises.checker.report import Report
from labs.exercises.checker.source_code import solution_of


def check(
    name: str,
    source: str | Path | Iterable[str] | None = None,
    *,
    servers: str | None = None,
    fail_fast: bool = False,
) -> Report:
    """Judge the code for exercise `name` as `labs.exercises.checker.check.check` does, and note the verdict."""
    report = judge(name, source, servers=servers, fail_fast=fail_fast)
    notes_of().add(CHECKED, exercise=name, verdict=str(report.grade), source=report.source)
    return report


def own_or_reference(attempt: Report, *, servers: str | None = None) -> Report:
    """Return the attempt if it passed. Otherwise show the reference solution, judge it, and return that report."""
    if attempt.passed:
        print("Yours is green.")
        return attempt
    solution = solution_of(attempt.exercise)
    print(f"The reference solution of {attempt.exercise}, to compare yours with:\n\n{solution.read_text()}")
    return judge(attempt.exercise, solution, servers=servers)


def reference(name: str, function: str) -> Callable[..., object]:
    """Return a function of the reference solution, for a lesson that goes on with it where the student's own failed."""
    return getattr(importlib.import_module(f"labs.exercises.solutions.{name}"), function)
