"""Show your progress: predictions, exercises and exit tickets, from the notes on your desk, which stay there."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from labs.desk.desk import DESK
from labs.desk.progress import NOTES, notes_of

EXAMPLES = """examples:
  python -m labs progress
  python -m labs progress --json
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("folder", nargs="?", type=Path, default=DESK, help="the desk (default: my-lab)")
    parser.add_argument("--json", action="store_true", help="print one JSON object")


def run(arguments: argparse.Namespace) -> int:
    from rich.table import Table

    from labs.commands.console import plain_console
    from labs.desk.progress import progress_in

    desk: Path = arguments.folder.expanduser()
    notes = notes_of(desk)
    if not notes.kept:
        raise ValueError(f"{desk} is no desk; `python -m labs desk` makes one")
    progress = progress_in(notes)
    if arguments.json:
        print(json.dumps(progress.as_dict(), indent=2))
        return 0
    lessons = Table("lesson", "", "predicted", "rightly", "exit ticket", "rightly", box=None, padding=(0, 2, 0, 0))
    for each in progress.lessons:
        lessons.add_row(
            each.number,
            each.title,
            f"{each.predicted} of {each.predictions}",
            str(each.predicted_rightly),
            f"{each.answered} of {each.tickets}",
            str(each.answered_rightly),
        )
    exercises = Table("exercise", "attempts", "verdict", box=None, padding=(0, 2, 0, 0))
    for exercise in progress.exercises:
        verdict = "passed" if exercise.passed else "not yet" if exercise.attempts else ""
        exercises.add_row(exercise.name, str(exercise.attempts), verdict)
    console = plain_console()
    console.print(lessons)
    console.print()
    console.print(exercises)
    print("\nRightly: predictions at the first comparison, exit tickets at the first answer.")
    if progress.broken:
        print(f"{progress.broken} lines of {desk / NOTES} could not be read and were left out.")
    return 0
