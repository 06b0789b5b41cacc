"""Other engines before the same judge: install them, show their settings, and compare them under the same kills."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

EXAMPLES = """examples:
  python -m labs engines list
  python -m labs engines install flink           in an environment of its own; nothing else is touched
  python -m labs engines show flink              every setting, and why
  python -m labs engines compare --kills 5       all that are installed, each with its control
  python -m labs engines compare --engines spark quix --json out/engines.json

The exit code of compare is 0 only if every run of exactly once is valid and every control is found doubled.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    from labs.engines.catalogue import ENGINES
    from labs.engines.environment import ENVIRONMENTS

    orders = parser.add_subparsers(dest="order", required=True, metavar="ORDER")
    orders.add_parser("list", help="which engines there are, and which can be used")
    for order, purpose in (("install", "make an engine's environment"), ("remove", "delete an engine's environment")):
        orders.add_parser(order, help=purpose).add_argument("name", choices=sorted(ENVIRONMENTS))
    orders.add_parser("show", help="print an engine's settings").add_argument("name", choices=list(ENGINES))
    compare = orders.add_parser("compare", help="the same log, the same kills, the same judge")
    compare.add_argument("--engines", nargs="+", choices=list(ENGINES), help="(default: all that can be used)")
    compare.add_argument("--kills", type=int, default=3, metavar="N", help="in each run (default: %(default)s)")
    compare.add_argument("--seed", type=int, default=7, help="of the log and of the kills (default: %(default)s)")
    compare.add_argument("--records", type=int, default=40_000, metavar="N", help="(default: %(default)s)")
    compare.add_argument("--json", type=Path, metavar="FILE", help="write the report there too")


def run(arguments: argparse.Namespace) -> int:
    orders = {"list": show_list, "install": install, "remove": remove, "show": show, "compare": compare}
    return orders[arguments.order](arguments)


def show_list(arguments: argparse.Namespace) -> int:
    from labs.engines.catalogue import ENGINES
    from labs.engines.environment import Environment

    for engine in ENGINES.values():
        there = "part of the lab"
        if engine.installed_apart:
            environment = Environment.of(engine.name)
            sizes = f"not installed; {environment.fetched_mb} MB to fetch, {environment.kept_mb} MB on disk"
            there = f"installed in {environment.folder}" if environment.installed else sizes
        print(f"{engine.name:6} {engine.title}: {there}")
    return 0


def install(arguments: argparse.Namespace) -> int:
    from labs.commands.console import plain_console
    from labs.engines.environment import Environment
    from labs.equipment.jars import flink_connector_jars

    environment = Environment.of(arguments.name)
    console = plain_console(stderr=True)
    if not environment.installed:
        sizes = f"{environment.fetched_mb} MB to fetch, {environment.kept_mb} MB on disk"
        console.print(f"Installing {arguments.name}: {sizes}", soft_wrap=True)
    if arguments.name == "flink":
        flink_connector_jars()
    environment.install(lambda line: console.print(f"  {line}", soft_wrap=True))
    print(f"{arguments.name} is installed in {environment.folder}")
    return 0


def remove(arguments: argparse.Namespace) -> int:
    from labs.engines.environment import Environment

    Environment.of(arguments.name).remove()
    print(f"{arguments.name} is not installed")
    return 0


def show(arguments: argparse.Namespace) -> int:
    from labs.engines.catalogue import engine_called

    engine = engine_called(arguments.name)
    print(f"{engine.title}\n{engine.promise}")
    for exactly_once in (True, False):
        print(f"\n{'exactly once' if exactly_once else 'at least once, the control'}")
        for setting in engine.settings(exactly_once):
            print(f"  {setting.name} = {setting.value}\n      {setting.why}")
    return 0


def compare(arguments: argparse.Namespace) -> int:
    from rich.table import Table

    from labs.commands.console import plain_console
    from labs.engines.catalogue import ENGINES
    from labs.engines.environment import Environment
    from labs.runs import engine_comparison

    usable = [name for name, each in ENGINES.items() if not each.installed_apart or Environment.of(name).installed]
    names = arguments.engines or usable
    for name in names:
        if name not in usable:
            _ = Environment.of(name).python  # says what to do
    progress = plain_console(stderr=True)
    found = engine_comparison.compare(
        [ENGINES[name] for name in names],
        arguments.records,
        arguments.kills,
        arguments.seed,
        lambda line: progress.print(line, soft_wrap=True),
    )
    table = Table("engine", "guarantee", "kills", "lost", "duplicated", "verdict", "recovery, s", "first result, s")
    for each in found.runs:
        cells = (len(each.kills), each.audit.lost, each.audit.duplicated, each.audit.verdict)
        times = (engine_comparison.recovery(each), each.first_result and round(each.first_result, 1))
        table.add_row(each.engine, engine_comparison.guarantee(each), *map(str, cells), *map(str, times))
    plain_console().print(table)
    for each in found.runs:
        if each.audit.reason:
            print(f"{each.engine}, {engine_comparison.guarantee(each)}: {each.audit.reason}")
        if found.kills and not each.exactly_once and not each.audit.duplicated:
            print(f"{each.engine}: the control was not doubled, so these kills prove nothing of it", file=sys.stderr)
    if arguments.json:
        arguments.json.parent.mkdir(parents=True, exist_ok=True)
        arguments.json.write_text(json.dumps(found.as_dict(), indent=2) + "\n")
    return 0 if found.as_expected else 1
