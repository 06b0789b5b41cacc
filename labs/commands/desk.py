"""Lay out your desk: the lessons and exercises without outputs, in a folder of your own.

Run it again to bring the desk up to date. What you changed is never overwritten.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from labs.desk.desk import DESK, lay_out
from labs.equipment.plain_text import one_line

EXAMPLES = """examples:
  python -m labs desk
  python -m labs desk --reset 03        a fresh lesson 03 (or --reset 3); yours is kept beside it
  python -m labs desk --reset one_transaction      a fresh exercise, by its name
  python -m labs desk ~/exactly-once
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("folder", nargs="?", type=Path, default=DESK, help="where (default: my-lab)")
    parser.add_argument(
        "--reset", metavar="LESSON", help="replace this lesson, given by number or name, by a fresh one; yours is kept"
    )


def run(arguments: argparse.Namespace) -> int:
    desk: Path = arguments.folder.expanduser()
    laid = lay_out(desk, arguments.reset)
    for names, what in (
        (laid.new, "laid down"),
        (laid.renewed, "renewed: the course has changed it, and you had not"),
        (laid.beside, "laid beside yours: the course has changed it, and so have you"),
        (laid.same, "not reset: it is as the course has it"),
        (laid.kept, "your own, kept under this name"),
        (laid.gone, "no longer in the course; left where it is"),
    ):
        if len(names) > 3:
            print(f"{len(names)} lessons and exercises {what}")
        else:
            for name in names:
                print(f"{name}: {what}")
    print(f"your desk: {one_line(str(desk))}" + ("" if laid != type(laid)() else ", up to date"))
    return 0
