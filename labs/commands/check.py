"""Judge your solution of an exercise: your code, our crashes, the auditor's verdict.

Exit code 0: passed. 1: failed. 2: unknown (nothing to judge, or the check was not possible), or a wrong command line.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from labs.equipment.plain_text import one_line

if TYPE_CHECKING:
    from labs.exercises.checker.report import Report
    from labs.exercises.checker.scenario import Exercise

EXAMPLES = """examples:
  python -m labs check --list
  python -m labs check commit_order                      your cell on the desk, as you saved it
  python -m labs check commit_order mine.py              a file (.py or .ipynb)
  python -m labs check commit_order mine.py --junit report.xml
  python -m labs check commit_order mine.py --gradescope results.json --points 20
  python -m labs check commit_order mine.py --github     in a workflow of GitHub Actions

For graders: docs/teachers-guide.md.
"""
NOT_ENDED = "the check was started but did not finish: somebody stopped it, or the machine"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("exercise", nargs="?", help="its name; --list shows them")
    parser.add_argument(
        "file", nargs="?", help="your solution (default: your cell on the desk: the exercise's or the lesson's)"
    )
    parser.add_argument("--list", action="store_true", help="list the exercises")
    parser.add_argument("--json", action="store_true", help="print one JSON object on standard output")
    parser.add_argument("--fail-fast", action="store_true", help="stop at the first scenario that does not pass")
    graders = parser.add_argument_group("for graders")
    graders.add_argument("--junit", metavar="FILE", type=Path, help="write JUnit XML")
    graders.add_argument("--gradescope", metavar="FILE", type=Path, help="write Gradescope's results.json")
    graders.add_argument(
        "--points", type=_points, metavar="N", help="the full score there (default: 1 for each scenario)"
    )
    graders.add_argument(
        "--visibility",
        choices=("visible", "hidden", "after_due_date", "after_published"),
        default="visible",
        help="when students see the scenarios there (default: visible)",
    )
    graders.add_argument(
        "--github", action="store_true", help="annotate a run of GitHub Actions, and write its summary"
    )


def run(arguments: argparse.Namespace) -> int:
    from labs.commands.console import plain_console
    from labs.desk.desk import DESK, solution_on
    from labs.desk.progress import CHECKED, notes_of
    from labs.equipment.plain_text import check_writable
    from labs.exercises.checker.check import EXERCISES, check, find_exercise
    from labs.exercises.checker.report import Report
    from labs.exercises.checker.student_module import NoSource

    if arguments.list:
        for name in EXERCISES:
            print(f"{name:<21} {find_exercise(name).task}")
        return 0
    if not arguments.exercise:
        return _usage("name an exercise; `python -m labs check --list` shows them")
    file = arguments.file or solution_on(DESK, arguments.exercise)
    try:
        exercise = find_exercise(arguments.exercise)
        for written in filter(None, (arguments.junit, arguments.gradescope)):
            check_writable(written)
            if file and written.resolve() == Path(file).resolve():
                raise ValueError(f"{written} is the file to judge: name another file for the report")
        # However the check ends, a grader finds a report of this check, and not an older one.
        _write_reports(arguments, exercise, Report(arguments.exercise, str(arguments.file or ""), [], NOT_ENDED))
    except (ValueError, OSError) as error:  # UnknownExercise is a ValueError
        return _usage(str(error))
    console = plain_console(stderr=True)
    try:
        with console.status("starting Kafka") as status:
            report = check(
                arguments.exercise,
                file,
                fail_fast=arguments.fail_fast,
                starting=lambda scenario: status.update(f"{scenario} …"),
            )
    except NoSource as error:  # a grader needs a report even if nothing was handed in
        return _without_judgement(arguments, exercise, str(error))
    except Exception as error:  # not the student's fault, so never exit code 1
        if os.environ.get("LABS_TRACEBACK"):
            raise
        return _without_judgement(arguments, exercise, f"could not be judged: {type(error).__name__}: {error}")
    if file and Path(file).resolve().is_relative_to(DESK):
        notes_of(DESK).add(CHECKED, exercise=report.exercise, verdict=str(report.grade), source=report.source)
    try:
        _write_reports(arguments, exercise, report)
    except OSError as error:
        return _usage(f"{report.grade}, and the report could not be written: {error}")
    _show(report, arguments)
    _tell_github(arguments, exercise, report)
    return report.exit_code


def _without_judgement(arguments: argparse.Namespace, exercise: Exercise, why: str) -> int:
    """Tell graders and the user why nothing was judged: it is no success, and not the student's fault."""
    from labs.exercises.checker.report import Report

    report = Report(arguments.exercise, str(arguments.file or ""), [], why)
    _write_reports(arguments, exercise, report)
    _tell_github(arguments, exercise, report)
    return _usage(why)


def _show(report: Report, arguments: argparse.Namespace) -> None:
    from labs.commands.console import plain_console
    from labs.exercises.checker.report import without_commands

    if arguments.json:
        json.dump(report.as_dict(), sys.stdout, indent=2)
        print()
    elif arguments.github:
        print(without_commands(str(report)))
    else:
        report.show(plain_console())


def _write_reports(arguments: argparse.Namespace, exercise: Exercise, report: Report) -> None:
    """Write the files that were asked for."""
    from labs.exercises.checker.report import as_gradescope

    if arguments.junit:
        arguments.junit.write_text(report.as_junit(), "utf-8")
    if arguments.gradescope:
        results = as_gradescope(report, exercise, arguments.points, arguments.visibility)
        arguments.gradescope.write_text(json.dumps(results, indent=2), "utf-8")


def _tell_github(arguments: argparse.Namespace, exercise: Exercise, report: Report) -> None:
    """Annotate the run of GitHub Actions, and write its summary."""
    from labs.exercises.checker.report import github_lines, write_summary

    if arguments.github:
        if summary := os.environ.get("GITHUB_STEP_SUMMARY"):
            write_summary(Path(summary), report, exercise)
        print(*github_lines(report, exercise), sep="\n")


def _points(text: str) -> float:
    try:
        points = float(text)
    except ValueError:
        points = 0
    if not 0 < points < 1e6:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of points above 0")
    return points


def _usage(message: str) -> int:
    print(f"python -m labs check: {one_line(message, 2_000)}", file=sys.stderr)
    return 2
