"""Measure this machine. Compare only numbers of the same run: the machine is not equally fast in two runs."""

from __future__ import annotations

import argparse

EXAMPLES = """examples:
  python -m labs benchmark ingest      lines/s parsed, records/s produced, records/s counted
  python -m labs benchmark sink        Spark's own Kafka sink against the exactly-once sink
  python -m labs benchmark restart     from the crash to the first new result
  python -m labs benchmark latency     from "the window can be closed" to visible, at 5,000 records/s
  python -m labs benchmark real-time   from sent to read: micro-batches, Real-Time Mode, and exactly once in it
  python -m labs benchmark writers     the sink by executors with 1, 2 and 4 writers, Spark's own, and each part's cost
  python -m labs benchmark memory      the driver's memory and traffic, when executors write a batch of 10 million rows
  python -m labs benchmark cluster     the same count on local[2] and on a standalone cluster
  python -m labs benchmark peers       the same count on every installed engine: a record's cost, and the latency
  python -m labs benchmark peers --engines flink --rounds 2 --small 10000000 --large 40000000
"""
BENCHMARKS = ("ingest", "sink", "restart", "latency", "real-time", "writers", "memory", "cluster", "peers")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("benchmark", choices=BENCHMARKS)
    parser.add_argument("--small", type=int, default=2_000_000, help="ingest, peers: records of the short run")
    parser.add_argument(
        "--large",
        type=int,
        default=10_000_000,
        help="ingest, peers: records of the long run; memory: rows of the batch",
    )
    rounds = "sink, restart, writers, cluster, peers: runs of each (default: 1 for peers, 3 to 5 for the others)"
    parser.add_argument("--rounds", type=int, help=rounds)
    parser.add_argument("--windows", type=int, default=60, help="latency: windows measured in each run")
    parser.add_argument("--seconds", type=int, default=30, help="real-time: how long records are sent in each run")
    parser.add_argument("--partitions", type=int, default=1, help="peers: of the source (default: %(default)s)")
    parser.add_argument("--engines", nargs="+", metavar="NAME", help="peers: these (default: all that are installed)")


def run(arguments: argparse.Namespace) -> int:
    import importlib

    from labs.commands.console import plain_console

    options = {} if arguments.rounds is None else {"rounds": arguments.rounds}
    if arguments.benchmark == "ingest":
        options = {"small": arguments.small, "large": arguments.large}
    if arguments.benchmark == "peers":
        options |= {name: getattr(arguments, name) for name in ("small", "large", "engines", "partitions")}
    if arguments.benchmark == "memory":
        options = {"large": arguments.large}
    if arguments.benchmark == "latency":
        options = {"windows": arguments.windows}
    if arguments.benchmark == "real-time":
        options = {"seconds": arguments.seconds}
    module = importlib.import_module(f"labs.benchmarks.{arguments.benchmark.replace('-', '_')}")
    with plain_console(stderr=True).status("measuring; each result is printed as soon as it is known"):
        for row in module.measure(**options):
            if isinstance(row, dict):
                print(" · ".join(f"{name}: {value:,.6g}" for name, value in row.items()), flush=True)
            else:
                what, value, unit = row
                print(f"{what}: {value:,.3g} {unit}" if value < 100 else f"{what}: {value:,.0f} {unit}", flush=True)
    return 0
