"""Climb the staircase: the same log and faults, with one more mechanism each time, until no result is duplicated.

The command never overwrites a file that the lab did not make.
"""

from __future__ import annotations

import argparse
import json
import os
import uuid
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from rich.console import Console
    from rich.table import Table

    from labs.commands.console import Bars, Lines
    from labs.equipment.broker import AnyBroker
    from labs.faults.proxy import Proxy
    from labs.runs.count import CountedLog, OpenLog
    from labs.runs.staircase import Outcome

EXAMPLES = """examples:
  python -m labs demo
  python -m labs demo --full          every stage, crashed at every point
  python -m labs demo --json
"""
# The records of one window; results come out from batch 3 on.
RECORDS_PER_BATCH = 80
RESULTS_FROM = 3
MADE_HERE = {"Software": "python -m labs demo"}  # noted in each picture, at its beginning
PICTURES = ("counts.png", "staircase.png", "heatmap.png")
FETCHING, STARTING, CLIMBING = "Kafka's jars, fetched once", "starting Kafka and Spark", "the staircase"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--full", action="store_true", help="crash every stage at every fault point; adds a heatmap")
    parser.add_argument("--json", action="store_true", help="print a list of {stage, fault, expected, lost, …}")
    parser.add_argument("--log", help="the log to count first (default: a generated one of 20,000 lines)")
    parser.add_argument("--output", default="out", metavar="DIR", help="where the plots go (default: %(default)s)")


def run(arguments: argparse.Namespace) -> int:
    from labs.commands.console import bench_progress, plain_console
    from labs.equipment.jars import all_jars
    from labs.equipment.spark import spark_session
    from labs.runs.count import open_log

    console = plain_console(stderr=arguments.json)
    output = Path(arguments.output)
    output.mkdir(parents=True, exist_ok=True)
    check_pictures(output / name for name in PICTURES)
    name = arguments.log or str(seeded_log(output / "access.log"))
    log = open_log([name])
    if not log.understood:  # reported before Kafka and Spark are started
        log.report.insist()
    with bench_progress(plain_console(stderr=True)) as progress:
        progress.show(FETCHING, 0, 1)
        all_jars()
        progress.show(FETCHING, 1, 1)
        progress.show(STARTING, 0, 2)
        with kafka_behind_a_proxy(meanwhile=spark_session) as (broker, proxy):
            spark = spark_session()
            progress.show(STARTING, 2, 2)
            counted = count_a_log(log, spark, broker, progress, console, output)
            outcomes = climb(arguments, spark, broker, proxy, progress)
    show(outcomes, arguments, console, output)
    exactly_once = [outcome for outcome in outcomes if outcome.stage == "+ batch marker"]
    return 0 if counted.audit.valid and all(outcome.audit.valid for outcome in exactly_once) else 1


@contextmanager
def kafka_behind_a_proxy(meanwhile: Callable[[], object]) -> Iterator[tuple[AnyBroker, Proxy | None]]:
    """Yield a broker and the proxy before it; the proxy is None before a Kafka that the lab did not start."""
    from labs.equipment.broker import open_broker
    from labs.faults.proxy import proxied_broker

    if os.environ.get("KAFKA_BOOTSTRAP_SERVERS"):
        yield open_broker(meanwhile), None
    else:
        with proxied_broker(meanwhile) as both:
            yield both


def count_a_log(
    log: OpenLog, spark: SparkSession, broker: AnyBroker, progress: Bars | Lines, console: Console, output: Path
) -> CountedLog:
    """Count one access log without a crash, print the audit and save its plot."""
    from labs.commands.console import in_colour
    from labs.evidence.plots.count_plots import plot_count_report
    from labs.pipeline.log.log_report import printable_name
    from labs.runs.count import count_log, fresh_topics

    servers = broker.bootstrap_servers
    with fresh_topics(servers) as topics:
        counted = count_log(log, spark, servers, topics, progress.show)
    plot = output / PICTURES[0]
    plot_count_report(counted.per_window, counted.per_ip, counted.audit).savefig(plot, dpi=120, metadata=MADE_HERE)
    file = counted.log.files[0].file
    console.print(f"Without a crash: {counted.log.good:,} requests of {file} counted. Plot: {printable_name(plot)}")
    if counted.doubt:
        console.print(counted.doubt)
    console.print(in_colour(counted.audit), soft_wrap=True)
    return counted


def climb(
    arguments: argparse.Namespace, spark: SparkSession, broker: AnyBroker, proxy: Proxy | None, progress: Bars | Lines
) -> list[Outcome]:
    """Run every stage under the same faults together; with --full also under each fault alone."""
    from exactly_once_kafka.points import FAULT_POINTS
    from labs.equipment.topics import create_topic, remove_topics
    from labs.evidence.auditor.expected import count_by_window
    from labs.faults.fault_points import Fault
    from labs.faults.proxy import LostAcknowledgement
    from labs.pipeline.log.generate import classroom
    from labs.pipeline.log.replay import close_windows, replay
    from labs.runs.staircase import AT_MOST_ONCE, STAGES, run_stage

    servers, accesses = broker.bootstrap_servers, list(classroom())
    topic = create_topic(servers, f"classroom_{uuid.uuid4().hex[:8]}", partitions=1)
    close_windows(replay(accesses, servers, topic).last_time_ms, servers, topic)
    lost: list[Fault | LostAcknowledgement] = [LostAcknowledgement(RESULTS_FROM, proxy)] if proxy else []
    storm = (*lost, Fault("mid_rows", RESULTS_FROM + 1), Fault("after_commit", RESULTS_FROM + 2))
    plan = [(stage, storm) for stage in STAGES]
    if arguments.full:
        alone = [*lost, *(Fault(point, RESULTS_FROM + 1) for point in FAULT_POINTS)]
        plan += [(stage, (fault,)) for stage in (AT_MOST_ONCE, *STAGES) for fault in alone]
    options: dict[str, Any] = {"source_topic": topic, "records_per_batch": RECORDS_PER_BATCH}
    outcomes: list[Outcome] = []
    try:
        for stage, faults in plan:
            fault = f", {faults[0].name}" if len(faults) == 1 else ""
            progress.show(CLIMBING, len(outcomes), len(plan), f"{stage.name}{fault}")
            outcomes.append(run_stage(stage, spark, servers, count_by_window(accesses), *faults, **options))
        progress.show(CLIMBING, len(outcomes), len(plan))
    finally:
        if broker.external:
            remove_topics(servers, topic, *(outcome.topic for outcome in outcomes))
    return outcomes


def show(outcomes: list[Outcome], arguments: argparse.Namespace, console: Console, output: Path) -> None:
    """Print the staircase as a table or JSON and save the plots."""
    from labs.evidence.plots.stage_plots import plot_stage_fault_heatmap, plot_staircase
    from labs.evidence.plots.style import figure_of
    from labs.pipeline.log.log_report import printable_name

    rows = [outcome.as_row() for outcome in outcomes]
    plots = [output / PICTURES[1]]
    storm = [row for row, outcome in zip(rows, outcomes, strict=True) if len(outcome.faults) > 1]
    figure_of(plot_staircase(storm)).savefig(plots[0], dpi=120, bbox_inches="tight", metadata=MADE_HERE)
    if arguments.full:
        plots.append(output / PICTURES[2])
        heatmap = plot_stage_fault_heatmap([row for row in rows if row not in storm])
        figure_of(heatmap).savefig(plots[1], dpi=120, bbox_inches="tight", metadata=MADE_HERE)
    if arguments.json:
        print(json.dumps(rows, indent=2))
        return
    faults = storm[0]["fault"]
    console.print(f"\nThe staircase: the same faults ({faults}), with one more mechanism each time")
    console.print(_table(storm))
    if arguments.full:
        console.print("\nEach fault alone")
        console.print(_table([row for row in rows if row not in storm], "fault"))
    console.print(f"Plots: {', '.join(map(printable_name, plots))}")
    console.print("\n" + in_a_sentence(storm))
    console.print("Next: make lab opens the lessons; make room lets you kill the processes yourself.")


def in_a_sentence(storm: list[dict[str, Any]]) -> str:
    """Say what the staircase has shown."""
    first, last = storm[0], storm[-1]
    wrong = f"{last['lost']} results are lost and {last['duplicated']} duplicated"
    return (
        f"The same faults: with {first['stage']} {first['duplicated']} of {first['expected']} results are duplicated; "
        f"with every mechanism {wrong}."
    )


def _table(rows: list[dict[str, Any]], *more: str) -> Table:
    from rich.table import Table
    from rich.text import Text

    table = Table()
    numbers = ("expected", "lost", "duplicated")
    for column in ("stage", *more, *numbers, "verdict"):
        table.add_column(column, justify="right" if column in numbers else "left", overflow="fold")
    for row in rows:
        *cells, verdict = (str(row[str(column.header)]) for column in table.columns)
        table.add_row(*cells, Text(verdict, style="green" if verdict == "valid" else "red"))
    return table


def check_pictures(files: Iterable[Path]) -> None:
    """Raise ValueError if a picture would overwrite a file that `demo` did not make."""
    for file in files:
        if file.exists() and MADE_HERE["Software"].encode() not in file.read_bytes()[:4096]:
            raise _not_ours(file)


def seeded_log(file: Path) -> Path:
    """Write the log, which is always the same. Raises ValueError if a file with other content is in the way."""
    from labs.pipeline.log.generate import Traffic, format_line

    text = "".join(format_line(access) + "\n" for access in Traffic(requests=20_000, clients=200))
    if not file.exists():
        file.write_text(text)
    elif file.read_bytes() != text.encode():
        raise _not_ours(file)
    return file


def _not_ours(file: Path) -> ValueError:
    from labs.pipeline.log.log_report import printable_name

    return ValueError(
        f"{printable_name(file)} is there already, and this command did not make it: nothing was written. "
        "Move it away, or name another directory with --output"
    )
