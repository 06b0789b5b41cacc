"""Climb the staircase: the same log and the same crash, with one more mechanism each time, until nothing is doubled."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

EXAMPLES = """examples:
  python -m labs demo
  python -m labs demo --full          every stage, crashed at every point
  python -m labs demo --json
"""
CRASHED_BATCH = 2
RECORDS_PER_BATCH = 120


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--full", action="store_true", help="crash every stage at every fault point; adds a heatmap")
    parser.add_argument("--json", action="store_true", help="print a list of {stage, fault, expected, lost, …}")
    parser.add_argument("--log", help="the log to count first (default: a seeded one of 20,000 lines)")
    parser.add_argument("--output", default="out", metavar="DIR", help="where the plots go (default: %(default)s)")


def run(arguments: argparse.Namespace) -> int:
    from rich.console import Console

    from labs.commands.progress import bench_progress
    from labs.equipment import open_broker, spark_session

    console = Console(stderr=arguments.json)
    output = Path(arguments.output)
    output.mkdir(parents=True, exist_ok=True)
    with bench_progress(Console(stderr=True)) as progress:
        starting = progress.add_task("starting Kafka and Spark", total=2)
        with open_broker() as broker:
            progress.advance(starting)
            spark = spark_session()
            progress.advance(starting)
            counted = count_a_log(arguments, spark, broker, progress, console, output)
            outcomes = climb(arguments, spark, broker, progress)
    show(outcomes, arguments, console, output)
    exactly_once = [outcome for outcome in outcomes if outcome.stage == "+ batch marker"]
    return 0 if counted.audit.valid and all(outcome.audit.valid for outcome in exactly_once) else 1


def count_a_log(arguments, spark, broker, progress, console, output: Path):
    """Count one access log without a crash, print the audit and save its plot."""
    from labs.evidence.counted_log import count_log
    from labs.evidence.plots import plot_count_report
    from labs.pipeline.generate import Traffic, format_line

    log = arguments.log
    if not log:
        log = output / "access.log"
        log.write_text("".join(format_line(access) + "\n" for access in Traffic(requests=20_000, clients=200)))
    counted = count_log([log], spark, broker.bootstrap_servers, progress)
    plot = output / "counts.png"
    plot_count_report(counted.counts, counted.audit).savefig(plot, dpi=120)
    console.print(f"[bold]Without a crash[/]: {counted.log.good:,} requests of {log} counted. Plot: {plot}")
    console.print(str(counted.audit), highlight=False)
    return counted


def climb(arguments, spark, broker, progress) -> list:
    """Run every stage, crashed after the commit of a batch (with --full at every fault point)."""
    from labs.equipment import create_topic
    from labs.evidence.expected import count_by_window
    from labs.evidence.staircase import AT_MOST_ONCE, STAGES, run_stage
    from labs.faults import Fault
    from labs.pipeline import FAULT_POINTS, close_windows, replay
    from labs.pipeline.generate import classroom

    servers, accesses = broker.bootstrap_servers, list(classroom())
    topic = create_topic(servers, f"classroom_{id(accesses):x}", partitions=1)
    close_windows(replay(accesses, servers, topic).last_time_ms, servers, topic)
    points = FAULT_POINTS if arguments.full else ("after_commit",)
    stages = (AT_MOST_ONCE, *STAGES) if arguments.full else STAGES
    task = progress.add_task("", total=len(stages) * len(points))
    outcomes = []
    for stage in stages:
        for point in points:
            progress.update(task, description=f"{stage.name}, crashed at {point}")
            outcomes.append(
                run_stage(
                    stage,
                    spark,
                    servers,
                    count_by_window(accesses),
                    Fault(point, CRASHED_BATCH),
                    source_topic=topic,
                    records_per_batch=RECORDS_PER_BATCH,
                )
            )
            progress.advance(task)
    return outcomes


def show(outcomes: list, arguments: argparse.Namespace, console, output: Path) -> None:
    """Print the staircase as a table or JSON and save the plots."""
    from rich.table import Table

    from labs.evidence.plots import plot_stage_fault_heatmap, plot_staircase

    rows = [outcome.as_row() for outcome in outcomes]
    plots = [output / "staircase.png"]
    at_one_point = [row for row in rows if row["fault"] == "after_commit"]
    plot_staircase(at_one_point).figure.savefig(plots[0], dpi=120, bbox_inches="tight")
    if arguments.full:
        plots.append(output / "heatmap.png")
        plot_stage_fault_heatmap(rows).figure.savefig(plots[1], dpi=120, bbox_inches="tight")
    if arguments.json:
        print(json.dumps(rows, indent=2))
        return
    table = Table(title="The staircase: the query is crashed once, restarted, and its results audited")
    for column in ("stage", "crashed at", "expected", "lost", "duplicated", "audit"):
        table.add_column(column, justify="right" if column in ("expected", "lost", "duplicated") else "left")
    for row in rows:
        numbers = [str(row[key]) for key in ("expected", "lost", "duplicated")]
        table.add_row(row["stage"], row["fault"], *numbers, row["verdict"])
    console.print(table)
    console.print(f"Plots: {', '.join(map(str, plots))}")
