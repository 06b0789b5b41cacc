"""Other engines under the same auditor: install them, show their settings, and compare them under the same kills."""

from __future__ import annotations

import argparse
import functools
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.table import Table

    from labs.judging.flink_checkpoint import Restored
    from labs.pipeline.log.access_log import Access

LONG = 1_000_000  # records of a backlog
JUDGED = ("lost", "duplicated", "verdict")
COLUMNS = {
    "kills": ("seed", "engine", "guarantee", *JUDGED, "recoveries", "first_result"),
    "outage": ("seed", "engine", "timeout_seconds", "away_seconds", *JUDGED),
    "speed": ("seed", "engine", *JUDGED, "first_result", "drained", "latency_p50", "latency_p99", "cores", "memory_mb"),
}

EXAMPLES = """examples:
  python -m labs engines list
  python -m labs engines install flink           in an environment of its own; nothing else is changed
  python -m labs engines show flink              every setting, and why
  python -m labs engines compare --kills 5       all that are installed, each with its control
  python -m labs engines compare --kills 10 --records 100000    more kills need a longer log
  python -m labs engines compare --engines spark quix --json out/engines.json
  python -m labs engines compare --seeds 7 8 9 --trials kills outage
  python -m labs engines compare --engines flink --commit-seconds 5    a checkpoint every five seconds
  python -m labs engines checkpoint              open a checkpoint of Flink, move its position, and count on from there

compare has three trials: with kills, with an outage longer than the transactions' timeout, and without faults, for
speed. The exit code is 0 only if every exactly-once run is valid, except where its transactions timed out, and the
auditor finds every control doubled.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    from labs.engines.catalogue import ENGINES
    from labs.engines.engine import COMMIT_SECONDS
    from labs.engines.environment import ENVIRONMENTS

    orders = parser.add_subparsers(dest="order", required=True, metavar="ORDER")
    orders.add_parser("list", help="which engines there are, and which can be used")
    for order, purpose in (("install", "make an engine's environment"), ("remove", "delete an engine's environment")):
        orders.add_parser(order, help=purpose).add_argument("name", choices=sorted(ENVIRONMENTS))
    orders.add_parser("show", help="print an engine's settings").add_argument("name", choices=list(ENGINES))
    orders.add_parser("checkpoint", help="open a checkpoint of Flink, and move its position away from its state")
    compare = orders.add_parser("compare", help="compare engines: the same log, the same kills, the same auditor")
    compare.add_argument("--engines", nargs="+", choices=list(ENGINES), help="(default: all that can be used)")
    compare.add_argument("--kills", type=int, default=3, metavar="N", help="kills in each run (default: %(default)s)")
    compare.add_argument(
        "--seeds", type=int, nargs="+", default=[7], metavar="N", help="seeds of the log and of the kills"
    )
    compare.add_argument(
        "--records",
        type=int,
        default=40_000,
        metavar="N",
        help="records in the trial with kills (default: %(default)s)",
    )
    compare.add_argument(
        "--trials", nargs="+", choices=list(COLUMNS), default=list(COLUMNS), help="(default: all three)"
    )
    backlog = f"records in the trial for speed; from {LONG:,} on JVMs use all compilers (default: %(default)s)"
    compare.add_argument("--backlog", type=int, default=300_000, metavar="N", help=backlog)
    every = "seconds between two checkpoints, commits or micro-batches (default: %(default)s)"
    compare.add_argument("--commit-seconds", type=_seconds, default=COMMIT_SECONDS, metavar="N", help=every)
    compare.add_argument("--json", type=Path, metavar="FILE", help="write the report there too")


def _seconds(text: str) -> int:
    if not text.isdecimal() or not 1 <= int(text) <= 60:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number from 1 to 60")
    return int(text)


def run(arguments: argparse.Namespace) -> int:
    orders = {
        "list": show_list,
        "install": install,
        "remove": remove,
        "show": show,
        "checkpoint": checkpoint,
        "compare": compare,
    }
    return orders[arguments.order](arguments)


def show_list(arguments: argparse.Namespace) -> int:
    from labs.engines.catalogue import ENGINES
    from labs.engines.environment import environment_of

    for engine in ENGINES.values():
        there = "part of the lab"
        if engine.installed_apart:
            environment = environment_of(engine.name)
            sizes = f"not installed; {environment.fetched_mb} MB to fetch, {environment.kept_mb} MB on disk"
            there = f"installed in {environment.folder}" if environment.installed else sizes
        print(f"{engine.name:7} {engine.title}: {there}")
    return 0


def install(arguments: argparse.Namespace) -> int:
    from labs.commands.console import plain_console
    from labs.engines.environment import environment_of

    environment = environment_of(arguments.name)
    console = plain_console(stderr=True)
    if not environment.installed:
        sizes = f"{environment.fetched_mb} MB to fetch, {environment.kept_mb} MB on disk"
        console.print(f"Installing {arguments.name}: {sizes}", soft_wrap=True)
    with console.status(f"Installing {arguments.name}"):
        environment.install(lambda line: console.print(f"  {line}", soft_wrap=True))
    print(f"{arguments.name} is installed in {environment.folder}")
    return 0


def remove(arguments: argparse.Namespace) -> int:
    from labs.engines.environment import environment_of

    environment_of(arguments.name).remove()
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


def checkpoint(arguments: argparse.Namespace) -> int:
    from rich.table import Table

    from labs.commands.console import bench_progress, plain_console
    from labs.engines.engine import Work
    from labs.engines.environment import FLINK
    from labs.equipment.broker import open_broker
    from labs.equipment.child_process import temporary_directory
    from labs.judging.flink_checkpoint import restore_from
    from labs.pipeline.log.generate import Traffic

    FLINK.needed()  # or the user would wait for a Kafka first
    log, moves = list(Traffic(requests=12_000, seed=7, rate=200.0, clients=20)), (0, -100, 100)
    table = Table("position in partition 0", "moved to", "requests", "counted", "difference", "verdict")
    console = plain_console()
    with (
        bench_progress(plain_console(stderr=True)) as progress,
        open_broker() as broker,
        temporary_directory("labs-flink-") as folder,
    ):
        for done, moved in enumerate(moves):
            progress.show("killing and restarting Flink", done, len(moves))
            name = f"moved-{done}"
            work = Work(broker.bootstrap_servers, f"{name}-in", f"{name}-out", folder / name, name, partitions=2)
            found = restore_from(work, log, moved)
            if not moved:
                console.print(opened(found, log))
            numbers = (found.positions[0], found.moved_to, found.sent, found.counted)
            table.add_row(*(f"{each:,}" for each in numbers), f"{found.difference:+,}", str(found.audit.verdict))
    console.print(table)
    return 0


def opened(found: Restored, log: Sequence[Access]) -> Table:
    """Return a table of a checkpoint: its positions, the counts in its state, and the counts in the log before them."""
    from rich.table import Table

    from labs.evidence.auditor.expected import count_by_window
    from labs.evidence.auditor.observed import utc

    offsets = ", ".join(f"{offset:,} in partition {partition}" for partition, offset in sorted(found.positions.items()))
    in_log = count_by_window(log[: sum(found.positions.values())])
    table = Table(
        "open window", "counted in the state", "in the log before the positions", title=f"position: {offsets}"
    )
    for window in sorted({start for start, _ in found.state}):
        sums = (sum(n for (start, _), n in counts.items() if start == window) for counts in (found.state, in_log))
        table.add_row(utc(window), *(f"{each:,}" for each in sums))
    return table


def compare(arguments: argparse.Namespace) -> int:
    from labs.commands.console import plain_console
    from labs.engines.catalogue import chosen_engines
    from labs.judging import engine_comparison

    engines = chosen_engines(arguments.engines)
    progress = plain_console(stderr=True)
    backlog = arguments.backlog
    long_run, every = backlog >= LONG, arguments.commit_seconds
    size = engine_comparison.Size(arguments.records, arguments.kills, backlog, long_run, every)
    report: dict[str, Any] = {"machine": engine_comparison.machine(), "size": size._asdict(), "runs": []}
    runs = []
    say = functools.partial(progress.print, soft_wrap=True)
    for each in engine_comparison.compare(engines, arguments.seeds, size, arguments.trials, say):
        runs.append(each)
        report["runs"].append(each.as_dict())
        if arguments.json:  # after each run: it takes long, and may be interrupted
            arguments.json.parent.mkdir(parents=True, exist_ok=True)
            arguments.json.write_text(json.dumps(report, indent=1) + "\n")
    for table in tables(report["runs"]):
        plain_console().print(table)
    for each in runs:
        if each.run.audit.reason:
            print(f"{each.run.engine}, {engine_comparison.guarantee(each.run.exactly_once)}: {each.run.audit.reason}")
        if not each.as_expected:
            proves_nothing = "the control was not doubled, so these kills prove nothing about this engine"
            told = each.run.audit if each.run.exactly_once else proves_nothing
            print(f"{each.run.engine}, seed {each.seed}: {told}", file=sys.stderr)
    return 0 if all(each.as_expected for each in runs) else 1


def tables(runs: list[dict]) -> list[Table]:
    """Return one table for each trial."""
    from rich.table import Table

    made = []
    for trial, columns in COLUMNS.items():
        rows = [run for run in runs if run["trial"] == trial]
        if rows:
            table = Table(*columns, title=trial)
            for row in rows:
                table.add_row(*(_cell(row[column]) for column in columns))
            made.append(table)
    return made


def _cell(value: object) -> str:
    return ", ".join(map(str, value)) if isinstance(value, list) else "" if value is None else str(value)
