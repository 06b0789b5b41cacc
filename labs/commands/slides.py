"""Make a page to project: one screen for each lesson, with a picture, the question, and a button for the answer.

The page is one file that loads nothing: open it in any browser. Arrow keys change the lesson, the space bar shows the
answer, D changes between light and dark.
"""

from __future__ import annotations

import argparse
from pathlib import Path

EXAMPLES = """examples:
  python -m labs slides                          slides.html, all lessons
  python -m labs slides core_90 --output core.html        a screen for each question of the 90 minutes
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    what = "its number, such as 03, or core_90 (default: all that have a number)"
    parser.add_argument("lessons", nargs="*", metavar="LESSON", help=what)
    parser.add_argument(
        "--output", type=Path, default=Path("slides.html"), metavar="FILE", help="(default: slides.html)"
    )


def run(arguments: argparse.Namespace) -> int:
    from labs.desk.course import find_lesson, load_lessons
    from labs.desk.desk import LESSONS
    from labs.desk.slides import MADE_HERE, page
    from labs.equipment.plain_text import check_writable, text_of

    file: Path = arguments.output
    check_writable(file)
    if file.exists() and MADE_HERE not in text_of(file, errors="replace"):
        raise ValueError(f"{file} is there already, and this command did not make it: name another file with --output")
    lessons = [find_lesson(number) for number in arguments.lessons] or load_lessons()
    if not lessons:
        raise ValueError("there are no lessons to make slides of")
    file.write_text(page(lessons, LESSONS), "utf-8")
    print(f"{file}: {len(lessons)} screen{'s' if len(lessons) > 1 else ''}")
    return 0
