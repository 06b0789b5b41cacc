"""Count the requests per IP and 5-second window of an access log, through a real Kafka and a real Spark."""

from __future__ import annotations

import argparse
import gc
import json
import os
import sys
import time
from collections.abc import Iterable
from functools import partial
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
LONG_LOG = 75_000_000  # bytes, unpacked: from about 500,000 lines on, all compilers save more than they cost
UNPACKED = 10  # a gzip becomes about so many times as long
# New objects between two runs of Python's cycle collector. A log becomes millions of objects without a cycle, and by
# default the collector takes a fifth of Python's time.
PAUSE_OF_COLLECTOR = 1_000_000
STARTING = "starting Kafka and Spark"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("logs", nargs="+", metavar="LOG", help="access log, plain or gzip; - is standard input")
    parser.add_argument("--json", action="store_true", help="print one JSON object on standard output, with all counts")
    parser.add_argument("--plot", metavar="FILE", help="save a picture (PNG, SVG or PDF)")
    parser.add_argument("--top", type=int, default=10, metavar="N", help="show N clients (default: %(default)s)")
    parser.add_argument(
        "--as-is", action="store_true", help="keep the log's order; late requests are not counted but reported"
    )
    parser.add_argument("--timezone", default="UTC", help="time zone of times without an offset (default: %(default)s)")
    parser.add_argument(
        "--keep", action="store_true", help="keep the topics and the broker, so that you can look at them"
    )


def run(arguments: argparse.Namespace) -> int:
    from labs.commands.console import bench_progress, plain_console
    from labs.equipment.broker import open_broker
    from labs.equipment.spark import spark_session
    from labs.runs.count import count_log, fresh_topics, nothing_counted, open_log

    console = plain_console(stderr=True)
    try:
        zone = ZoneInfo(arguments.timezone)
    except (ZoneInfoNotFoundError, ValueError, OSError) as error:
        raise ValueError(f"there is no time zone {arguments.timezone!r}; expected one such as Europe/Berlin") from error
    if arguments.top < 1:
        raise ValueError(f"--top is {arguments.top}; expected 1 or more")
    if arguments.plot:
        check_plot(Path(arguments.plot))
    gc.set_threshold(PAUSE_OF_COLLECTOR)
    began = time.monotonic()
    log = open_log(arguments.logs, zone, arguments.as_is)
    if not log.understood:  # reported before Kafka and Spark are started
        show(nothing_counted(log), arguments, console)
        log.report.insist()
    with bench_progress(console) as progress:
        progress.show(STARTING, 0, 2)
        start_spark = partial(spark_session, quick_start=not is_long(arguments.logs))
        with open_broker(meanwhile=start_spark) as broker:
            servers, spark = broker.bootstrap_servers, start_spark()
            progress.show(STARTING, 2, 2)
            started = time.monotonic() - began
            with fresh_topics(servers, arguments.keep) as topics:
                counted = count_log(log, spark, servers, topics, progress.show)
                progress.close()
                show(counted, arguments, console)
                took = {STARTING: started, **counted.seconds}
                console.print("Seconds: " + ", ".join(f"{what} {seconds:.1f}" for what, seconds in took.items()))
                if arguments.keep:
                    keep(broker, counted)
    if wrong := [text for text in (counted.log.complaint, counted.doubt, counted.unsent) if text]:
        raise ValueError("\n".join(wrong))
    return 0 if counted.audit.valid else 1


def is_long(logs: Iterable[str]) -> bool:
    """Tell whether the logs are so long that a JVM with all compilers saves time; a pipe counts as short."""
    files = [(log.endswith(".gz"), Path(log)) for log in logs if log != "-"]
    return sum(file.stat().st_size * (UNPACKED if gz else 1) for gz, file in files if file.is_file()) >= LONG_LOG


def check_plot(file: Path) -> None:
    """Raise ValueError unless a picture can be saved there. Called before the work, so that none is lost."""
    from labs.pipeline.log.log_report import printable_name

    if file.suffix.lower() not in PICTURES:
        raise ValueError(f"--plot {printable_name(file)}: the name must end in {', '.join(PICTURES)}")
    if not os.access(file.parent, os.W_OK):
        raise ValueError(
            f"--plot {printable_name(file)}: {printable_name(file.parent)} is not a directory that you can write to"
        )


def show(counted: CountedLog, arguments: argparse.Namespace, console: Console) -> None:
    """Print the report, save the plot."""
    from labs.pipeline.log.log_report import printable_name

    if arguments.plot and counted.windows:
        from labs.evidence.plots.count_plots import plot_count_report

        plot_count_report(counted.per_window, counted.per_ip, counted.audit).savefig(arguments.plot, dpi=120)
        console.print(f"plot: {printable_name(arguments.plot)}")
    if arguments.json:
        json.dump(counted.as_dict(), sys.stdout)
        print()
        return
    if not counted.log.good:
        return
    from rich.table import Table

    from labs.commands.console import in_colour, plain_console
    from labs.evidence.auditor.expected import busiest_ips
    from labs.evidence.auditor.observed import utc

    print(f"{counted.log.good:,} requests in {counted.windows:,} windows of 5 s")
    table = Table()
    table.add_column("client", overflow="fold")
    table.add_column("requests", justify="right")
    for ip, count in busiest_ips(counted.per_ip, arguments.top):
        table.add_row(ip, f"{count:,}")
    plain_console().print(table)
    if counted.span:
        print("from {} to {}".format(*map(utc, counted.span)))
    if busiest := counted.busiest:
        start, requests = busiest
        print(f"busiest window: {utc(start)}, {requests:,} requests")
    print(counted.log.summary)
    if counted.late:
        print(f"{counted.late:,} requests came after their window was final (late); without --as-is none does")
    plain_console().print(in_colour(counted.audit), soft_wrap=True)


def keep(broker: AnyBroker, counted: CountedLog) -> None:
    """Print where the topics are; if the Kafka would end with this process, wait for Ctrl-C."""
    import signal

    where = f"Kafka is at {broker.bootstrap_servers}; topics {', '.join(counted.topics)}."
    if broker.external:
        print(where)
        return
    print(f"{where} Ctrl-C ends it.", flush=True)
    signal.sigwait({signal.SIGINT, signal.SIGTERM, signal.SIGHUP})
