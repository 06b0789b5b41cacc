"""Inject faults at random while traffic flows, and let the auditor judge the results."""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Group

    from labs.faults.chaos_injectors import ChaosPlan, Strike
    from labs.runs.chaos import ChaosReport, Sample

EXAMPLES = """examples:
  python -m labs chaos                                     three minutes, seed 7, one broker
  python -m labs chaos --seed 11 --minutes 10 --nodes 3    a cluster of three brokers
  python -m labs chaos --executors 2 --faults driver-kill executor-kill
  python -m labs chaos --spare                             keep the next driver warm, to take over at once
  python -m labs chaos --minutes 1 --least driver=20       continue until 20 drivers have been killed
  python -m labs chaos --sink no-marker                    the control: it must be found invalid
  python -m labs chaos --sink my-lab/my_sink.py            a sink of your own
  python -m labs chaos --sink no-marker --faults driver-point --points after_commit

The exit code is 0 only if the audit is valid. The seed decides which faults strike and in which order; the exact
moments depend on the machine, and are in the report.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    from labs.faults.chaos_injectors import KINDS
    from labs.faults.job import SINK_HELP, SINKS

    what = "; ".join(f"{kind}: {meaning}" for kind, meaning in KINDS.items())
    parser.add_argument("--seed", type=int, default=7, help="(default: %(default)s)")
    parser.add_argument("--minutes", type=float, default=3.0, help="how long faults strike (default: %(default)g)")
    parser.add_argument(
        "--least",
        nargs="+",
        type=victims,
        default=[],
        metavar="VICTIM=N",
        help="continue until at least so many have been killed: driver=5 broker=3 executor=2",
    )
    parser.add_argument("--faults", nargs="+", metavar="FAULT", help=f"which (default: all that are possible). {what}")
    parser.add_argument("--points", nargs="+", metavar="POINT", help="where driver-point strikes (default: anywhere)")
    parser.add_argument("--sink", default=SINKS[0], help=SINK_HELP)
    parser.add_argument("--nodes", type=int, default=1, help="brokers (default: %(default)s)")
    parser.add_argument(
        "--executors", type=int, default=0, help="run Spark on N executor processes; 0: within the driver"
    )
    parser.add_argument("--spare", action="store_true", help="keep the next driver warm, to take over at once")
    parser.add_argument("--rate", type=float, default=1_000.0, help="records per second (default: %(default)g)")
    parser.add_argument("--output", type=Path, default=Path("out"), metavar="DIR", help="(default: %(default)s)")
    parser.add_argument("--json", action="store_true", help="print the report as one JSON object")


def victims(text: str) -> tuple[str, int]:
    victim, _, number = text.partition("=")
    if not number.isdecimal():
        raise argparse.ArgumentTypeError(f"{text!r} is not VICTIM=N, such as driver=5")
    return victim, int(number)


def run(arguments: argparse.Namespace) -> int:
    from rich.live import Live

    from exactly_once_kafka.points import FAULT_POINTS
    from labs.commands.console import plain_console
    from labs.evidence.plots.style import figure_of
    from labs.faults.chaos_injectors import KINDS, WITHOUT_EXECUTORS, ChaosPlan
    from labs.runs.chaos import run_chaos
    from labs.runs.chaos_plot import plot_chaos

    kinds = tuple(arguments.faults or (KINDS if arguments.executors else WITHOUT_EXECUTORS))
    plan = ChaosPlan(
        seed=arguments.seed,
        minutes=arguments.minutes,
        kinds=kinds,
        nodes=arguments.nodes,
        executors=arguments.executors,
        sink=arguments.sink,
        rate=arguments.rate,
        least=dict(arguments.least),
        points=tuple(arguments.points or FAULT_POINTS),
        spare=arguments.spare,
    )
    directory = arguments.output.resolve() / f"chaos-{plan.sink_name}-seed-{plan.seed}-{time.strftime('%H%M%S')}"
    console = plain_console(stderr=True)
    screen = Screen(plan)

    def show_strike(strike: Strike) -> None:
        screen.strikes.append(strike)
        if not console.is_terminal:
            console.print(f"{strike.began:.0f} s: {strike.kind} {strike.detail}")

    try:
        with Live(screen, console=console, refresh_per_second=4, transient=True):
            report = run_chaos(plan, directory, show_strike, screen.see)
    except KeyboardInterrupt:
        console.print(f"the evidence so far is kept in {directory}", soft_wrap=True, highlight=False)
        raise
    numbers = json.dumps(report.as_dict(), indent=2)
    (directory / "report.json").write_text(numbers)
    plot = directory / "timeline.png"
    figure_of(plot_chaos(report)).savefig(plot, dpi=120)
    if arguments.json:
        print(numbers)
    else:
        show(report, plot)
    return 0 if report.valid else 1


class Screen:
    """The table that a terminal shows during the run. Without a terminal, each fault is printed as a line."""

    def __init__(self, plan: ChaosPlan):
        self.plan = plan
        self.strikes: list[Strike] = []
        self._latest: Sample | None = None

    def see(self, sample: Sample) -> None:
        self._latest = sample

    def __rich__(self) -> Group:
        from rich.console import Group
        from rich.table import Table
        from rich.text import Text

        title = f"chaos, seed {self.plan.seed}, {self.plan.minutes:g} min into the {self.plan.sink_name} sink"
        if self._latest:
            now = self._latest
            title += f"\n{now.seconds:4.0f} s: {now.sent:,} records sent, {now.lag:,} behind, {now.visible:,} results"
        table = Table("seconds", "fault", "what")
        for strike in self.strikes[-12:]:
            table.add_row(f"{strike.began:.1f}", strike.kind, Text(strike.detail[:90]))
        return Group(title, table)  # a title of the table itself would be folded to the table's width


def show(report: ChaosReport, plot: Path) -> None:
    """Print every fault with its time, and the verdict."""
    from rich.table import Table
    from rich.text import Text

    from labs.commands.console import in_colour, plain_console

    table = Table("seconds", "fault", "what")
    for strike in report.strikes:
        span = f"{strike.began:.1f}"
        if strike.ended and strike.ended - strike.began > 0.1:
            span += f" – {strike.ended:.1f}"
        table.add_row(span, strike.kind, Text(strike.detail))
    console = plain_console()
    console.print(f"seed {report.plan.seed}: the faults and their times")
    console.print(table)
    for kind, count in report.faults.most_common():
        console.print(f"{count:4} × {kind}")
    recovery = report.recovery
    if recovery["kills"]:
        console.print(
            f"from a driver's kill to the next new result, {recovery['kills']} times"
            f"{', with a hot spare' if report.plan.spare else ''}: "
            f"p50 {recovery['p50']:.1f} s, longest {recovery['max']:.1f} s"
        )
    console.print(f"{report.records:,} records sent")
    console.print(in_colour(report.audit), soft_wrap=True)
    console.print(f"timeline: {plot}", soft_wrap=True)
    if not report.valid:
        console.print(f"the evidence is kept in {report.directory}", soft_wrap=True)
