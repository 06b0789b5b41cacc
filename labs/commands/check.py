"""Judge your solution of an exercise: your code, our crashes, the auditor's verdict.

Exit code 0: passed. 1: failed. 2: unknown (there was nothing to judge, or no way to), or a wrong command line.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from pathlib import Path

EXAMPLES = """examples:
  python -m labs check --list
  python -m labs check commit_order                      the exercise's notebook on your desk, as it was saved
  python -m labs check commit_order mine.py              a file (.py or .ipynb)
  python -m labs check commit_order mine.py --junit report.xml
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("exercise", nargs="?", help="its name; --list shows them")
    parser.add_argument("file", nargs="?", help="your solution (default: the exercise's notebook on your desk)")
    parser.add_argument("--list", action="store_true", help="list the exercises")
    parser.add_argument("--json", action="store_true", help="print one JSON object on standard output")
    parser.add_argument("--junit", metavar="FILE", type=Path, help="write JUnit XML")
    parser.add_argument("--fail-fast", action="store_true", help="stop at the first scenario that does not pass")


def run(arguments: argparse.Namespace) -> int:
    from labs.commands.console import plain_console
    from labs.desk.desk import DESK, notebook_on
    from labs.desk.notes import CHECKED, notes_of
    from labs.exercises.catalogue import EXERCISES
    from labs.exercises.checker.check import UnknownExercise, check, find_exercise
    from labs.exercises.checker.source_code import NoSource

    if arguments.list:
        for name in EXERCISES:
            print(f"{name:<21} {find_exercise(name).task}")
        return 0
    if not arguments.exercise:
        return _usage("name an exercise; `python -m labs check --list` shows them")
    file = arguments.file or notebook_on(DESK, arguments.exercise)
    console = plain_console(stderr=True)
    try:
        with console.status("starting Kafka") as status:
            report = check(
                arguments.exercise,
                file,
                fail_fast=arguments.fail_fast,
                starting=lambda scenario: status.update(f"{scenario} …"),
            )
    except (UnknownExercise, NoSource) as error:
        return _usage(str(error))
    except Exception as error:  # whatever is wrong with the bench is not the student's fault: never exit code 1
        if os.environ.get("LABS_TRACEBACK"):
            raise
        return _usage(f"could not judge: {type(error).__name__}: {error}")
    if file and Path(file).resolve().is_relative_to(DESK):
        notes_of(DESK).add(CHECKED, exercise=report.exercise, verdict=str(report.grade), source=report.source)
    if arguments.junit:
        arguments.junit.write_text(report.as_junit())
    if arguments.json:
        json.dump(report.as_dict(), sys.stdout, indent=2)
        print()
    else:
        report.show(plain_console())
    return report.exit_code


def _usage(message: str) -> int:
    print(f"python -m labs check: {message}", file=sys.stderr)
    return 2
