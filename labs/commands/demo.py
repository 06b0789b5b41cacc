"""Climb the staircase: the same log and the same crash, with one more mechanism each time, until nothing is doubled."""

from __future__ import annotations

import argparse
import json
import os
import uuid
from contextlib import contextmanager
from pathlib import Path

EXAMPLES = """examples:
  python -m labs demo
  python -m labs demo --full          every stage, crashed at every point
  python -m labs demo --json
"""
# One window's worth; results come out from batch 3 on.
RECORDS_PER_BATCH = 80
RESULTS_FROM = 3


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--full", action="store_true", help="crash every stage at every fault point; adds a heatmap")
    parser.add_argument("--json", action="store_true", help="print a list of {stage, fault, expected, lost, …}")
    parser.add_argument("--log", help="the log to count first (default: a seeded one of 20,000 lines)")
    parser.add_argument("--output", default="out", metavar="DIR", help="where the plots go (default: %(default)s)")


def run(arguments: argparse.Namespace) -> int:
    from rich.console import Console

    from labs.commands.progress import bench_progress
    from labs.equipment import spark_session

    console = Console(stderr=arguments.json)
    output = Path(arguments.output)
    output.mkdir(parents=True, exist_ok=True)
    with bench_progress(Console(stderr=True)) as progress:
        starting = progress.add_task("starting Kafka and Spark", total=2)
        with kafka_behind_a_proxy() as (broker, proxy):
            progress.advance(starting)
            spark = spark_session()
            progress.advance(starting)
            counted = count_a_log(arguments, spark, broker, progress, console, output)
            outcomes = climb(arguments, spark, broker, proxy, progress)
    show(outcomes, arguments, console, output)
    exactly_once = [outcome for outcome in outcomes if outcome.stage == "+ batch marker"]
    return 0 if counted.audit.valid and all(outcome.audit.valid for outcome in exactly_once) else 1


@contextmanager
def kafka_behind_a_proxy():
    """Yield a broker and the proxy before it; of a Kafka that somebody else runs, the proxy is None."""
    from labs.equipment import open_broker
    from labs.faults import proxied_broker

    if os.environ.get("KAFKA_BOOTSTRAP_SERVERS"):
        yield open_broker(), None
    else:
        with proxied_broker() as both:
            yield both


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


def climb(arguments, spark, broker, proxy, progress) -> list:
    """Run every stage through the same storm of faults; with --full through each fault alone as well."""
    from labs.equipment import create_topic
    from labs.evidence.expected import count_by_window
    from labs.evidence.staircase import AT_MOST_ONCE, STAGES, run_stage
    from labs.faults import Fault, LostAcknowledgement
    from labs.pipeline import FAULT_POINTS, close_windows, replay
    from labs.pipeline.generate import classroom

    servers, accesses = broker.bootstrap_servers, list(classroom())
    topic = create_topic(servers, f"classroom_{uuid.uuid4().hex[:8]}", partitions=1)
    close_windows(replay(accesses, servers, topic).last_time_ms, servers, topic)
    lost = [LostAcknowledgement(RESULTS_FROM, proxy)] if proxy else []
    storm = (*lost, Fault("mid_transaction", RESULTS_FROM + 1), Fault("after_commit", RESULTS_FROM + 2))
    plan = [(stage, storm) for stage in STAGES]
    if arguments.full:
        alone = [*lost, *(Fault(point, RESULTS_FROM + 1) for point in FAULT_POINTS)]
        plan += [(stage, (fault,)) for stage in (AT_MOST_ONCE, *STAGES) for fault in alone]
    task = progress.add_task("", total=len(plan))
    outcomes = []
    for stage, faults in plan:
        progress.update(task, description=f"{stage.name}, {' + '.join(fault.name for fault in faults)}")
        outcomes.append(
            run_stage(
                stage,
                spark,
                servers,
                count_by_window(accesses),
                *faults,
                source_topic=topic,
                records_per_batch=RECORDS_PER_BATCH,
            )
        )
        progress.advance(task)
    return outcomes


def show(outcomes: list, arguments: argparse.Namespace, console, output: Path) -> None:
    """Print the staircase as a table or JSON and save the plots."""
    from labs.evidence.plots import plot_stage_fault_heatmap, plot_staircase

    rows = [outcome.as_row() for outcome in outcomes]
    plots = [output / "staircase.png"]
    storm = [row for row, outcome in zip(rows, outcomes, strict=True) if len(outcome.faults) > 1]
    plot_staircase(storm).figure.savefig(plots[0], dpi=120, bbox_inches="tight")
    if arguments.full:
        plots.append(output / "heatmap.png")
        plot_stage_fault_heatmap([row for row in rows if row not in storm]).figure.savefig(
            plots[1], dpi=120, bbox_inches="tight"
        )
    if arguments.json:
        print(json.dumps(rows, indent=2))
        return
    faults = storm[0]["fault"]
    console.print(f"\nThe staircase: the same faults ({faults}), with one more mechanism each time", highlight=False)
    console.print(_table(storm))
    if arguments.full:
        console.print("\nEach fault alone")
        console.print(_table([row for row in rows if row not in storm], "fault"))
    console.print(f"Plots: {', '.join(map(str, plots))}")


def _table(rows: list[dict], *more: str):
    from rich.table import Table

    table = Table()
    numbers = ("expected", "lost", "duplicated")
    for column in ("stage", *more, *numbers, "verdict"):
        table.add_column(column, justify="right" if column in numbers else "left", overflow="fold")
    for row in rows:
        table.add_row(*[str(row[column.header]) for column in table.columns])
    return table
