"""Run a Spark cluster, a standalone master and its workers, until Ctrl-C. Its address is printed on standard output."""

from __future__ import annotations

import argparse
import math
import sys

EXAMPLES = """\
examples:
  python -m labs cluster --workers 2             on a free port
  python -m labs cluster --port 7077             on this port

The lessons and `python -m labs run` use it, instead of a Spark in their own process, if this variable names it:
  export SPARK_MASTER=spark://127.0.0.1:7077
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    from labs.commands.broker import port

    parser.add_argument("--workers", type=int, metavar="N", default=2, help="number of workers; default: 2")
    parser.add_argument("--cores", type=int, metavar="N", default=1, help="cores of each worker; default: 1")
    parser.add_argument(
        "--memory", default="1g", help="memory of each worker for its executors; default: 1g, enough for one"
    )
    parser.add_argument("--port", type=port, metavar="N", help="port of the master; default: a free one")


def run(arguments: argparse.Namespace) -> int:
    from labs.commands.console import plain_console
    from labs.equipment.spark_cluster import ClusterError, SparkCluster
    from labs.equipment.waiting import eventually

    console = plain_console(stderr=True)
    cluster = SparkCluster(arguments.workers, arguments.cores, arguments.memory, arguments.port)
    try:
        try:
            with console.status("Starting the cluster"):
                cluster.start()
            print(cluster.master, flush=True)
            for daemon in cluster.daemons:
                console.print(f"Log: {daemon.log_file}", soft_wrap=True)
            console.print("Ctrl-C ends it and deletes its logs")
            dead = eventually(lambda: [d for d in cluster.daemons if not d.pid], timeout=math.inf, interval=0.5)
            raise ClusterError(f"the {dead[0].name} ended, and this program did not end it.\n{dead[0].last_lines()}")
        finally:
            cluster.close()
    except KeyboardInterrupt:
        print("stopped", file=sys.stderr)
        return 0
