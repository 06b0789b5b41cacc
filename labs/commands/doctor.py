"""Check that this machine can run the lab. If something is missing, say what to do, and exit with code 1."""

from __future__ import annotations

import argparse
import dataclasses
import json
from collections.abc import Callable, Iterable

from labs.equipment.foreign_packages import foreign_packages
from labs.equipment.machine_checks import Check

EXAMPLES = """\
examples:
  python -m labs doctor          one line per check
  python -m labs doctor --json   the same as one JSON object
"""
MARKS = {True: ("✓", "green"), False: ("✗", "red"), None: ("–", "yellow")}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="print one JSON object on standard output")


def run(arguments: argparse.Namespace) -> int:
    try:
        from rich.text import Text

        from labs.commands.console import plain_console

        checks = _checks()
    except ModuleNotFoundError as error:
        raise RuntimeError(f"the package {error.name} is missing. Run: make setup, and use .venv/bin/python") from error

    console = plain_console(stderr=arguments.json)
    done = []
    with console.status("") as status:
        for check in checks(lambda name: status.update(f"{name} …")):
            done.append(check)
            console.print(Text.assemble(MARKS[check.passed], f" {check.name:<9}  {check.found}"), soft_wrap=True)
            for line in check.cure.splitlines():
                console.print(f"             {line}", style="bold", soft_wrap=True)
    passed = all(check.passed for check in done)
    if arguments.json:
        print(json.dumps({"passed": passed, "checks": [dataclasses.asdict(check) for check in done]}, indent=2))
    return 0 if passed else 1


def _checks() -> Callable[[Callable[[str], object]], Iterable[Check]]:
    """Return the checks; if foreign packages prevent their import, a single check that names these packages."""
    try:
        from labs.equipment.doctor import checks
    except (ImportError, AttributeError):
        if not (foreign := foreign_packages()):
            raise
        found, _, cure = foreign.partition("\n")
        return lambda starting: [Check("Packages", False, found, cure)]
    return checks
