"""Count the requests per IP and 5-second window of an access log, through a real Kafka and a real Spark."""

from __future__ import annotations

import argparse
import json
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

if TYPE_CHECKING:
    from rich.console import Console

    from labs.equipment.broker import AnyBroker
    from labs.runs.count import CountedLog

EXAMPLES = """examples:
  python -m labs count /var/log/nginx/access.log
  python -m labs count access.log access.log.1.gz --plot counts.png
  zcat old/*.gz | python -m labs count - --json > counts.json
"""
PICTURES = (".png", ".svg", ".pdf")
STARTING = "starting Kafka and Spark"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("logs", nargs="+", metavar="LOG", help="access log, plain or gzip; - is standard input")
    parser.add_argument("--json", action="store_true", help="print one JSON object on standard output")
    parser.add_argument("--plot", metavar="FILE", help="save a picture (PNG, SVG or PDF)")
    parser.add_argument("--top", type=int, default=10, metavar="N", help="show N clients (default: %(default)s)")
    parser.add_argument("--as-is", action="store_true", help="keep the log's order; what comes too late is reported")
    parser.add_argument("--timezone", default="UTC", help="of times without an offset (default: %(default)s)")
    parser.add_argument("--keep", action="store_true", help="keep the topics and the broker for a look at them")


def run(arguments: argparse.Namespace) -> int:
    from labs.commands.console import bench_progress, plain_console
    from labs.equipment.broker import open_broker
    from labs.equipment.spark import spark_session
    from labs.runs.count import count_log, fresh_topics, nothing_counted, open_log

    console = plain_console(stderr=True)
    try:
        zone = ZoneInfo(arguments.timezone)
    except (ZoneInfoNotFoundError, ValueError, OSError) as error:
        raise ValueError(f"no time zone is called {arguments.timezone!r}; an example: Europe/Berlin") from error
    if arguments.top < 1:
        raise ValueError(f"--top is {arguments.top}; expected 1 or more")
    if arguments.plot:
        check_plot(Path(arguments.plot))
    log = open_log(arguments.logs, zone)
    if not log.understood:  # said before Kafka and Spark are started
        show(nothing_counted(log), arguments, console)
        log.report.insist()
    with bench_progress(console) as progress:
        progress.show(STARTING, 0, 2)
        with open_broker(meanwhile=spark_session) as broker:
            servers, spark = broker.bootstrap_servers, spark_session()
            progress.show(STARTING, 2, 2)
            with fresh_topics(servers, arguments.keep) as topics:
                counted = count_log(log, spark, servers, topics, progress.show, as_is=arguments.as_is)
                progress.close()
                show(counted, arguments, console)
                if arguments.keep:
                    keep(broker, counted)
    if wrong := [text for text in (counted.log.complaint, counted.doubt) if text]:
        raise ValueError("\n".join(wrong))
    return 0 if counted.audit.valid else 1


def check_plot(file: Path) -> None:
    """Raise ValueError unless a picture can be saved there: before the work, not after it."""
    from labs.pipeline.log.log_report import printable_name

    if file.suffix.lower() not in PICTURES:
        raise ValueError(f"--plot {printable_name(file)}: the name must end in {', '.join(PICTURES)}")
    if not os.access(file.parent, os.W_OK):
        raise ValueError(
            f"--plot {printable_name(file)}: {printable_name(file.parent)} is no directory that can be written to"
        )


def show(counted: CountedLog, arguments: argparse.Namespace, console: Console) -> None:
    """Print the report, save the plot."""
    from labs.pipeline.log.log_report import printable_name

    if arguments.plot and counted.counts:
        from labs.evidence.plots.count_plots import plot_count_report

        plot_count_report(counted.counts, counted.audit).savefig(arguments.plot, dpi=120)
        console.print(f"plot: {printable_name(arguments.plot)}")
    if arguments.json:
        json.dump(counted.as_dict(), sys.stdout)
        print()
        return
    if not counted.log.good:
        return
    from rich.table import Table

    from labs.commands.console import plain_console
    from labs.evidence.auditor.observed import utc

    table = Table(title=f"{counted.log.good:,} requests in {counted.windows:,} windows of 5 s", title_justify="left")
    table.add_column("client", overflow="fold")
    table.add_column("requests", justify="right")
    for ip, count in counted.top(arguments.top):
        table.add_row(ip, f"{count:,}")
    plain_console().print(table)
    if counted.span:
        print("from {} to {}".format(*map(utc, counted.span)))
    print(counted.log.summary)
    if counted.late:
        print(f"{counted.late:,} requests came after their window was final (late); without --as-is none does")
    print(counted.audit)


def keep(broker: AnyBroker, counted: CountedLog) -> None:
    """Say where the topics are; wait for Ctrl-C if the Kafka would end with us."""
    import signal

    where = f"Kafka is at {broker.bootstrap_servers}; topics {', '.join(counted.topics)}."
    if broker.external:
        print(where)
        return
    print(f"{where} Ctrl-C ends it.", flush=True)
    signal.sigwait({signal.SIGINT, signal.SIGTERM, signal.SIGHUP})
