"""Run a Kafka broker until Ctrl-C. Its address is printed on standard output."""

from __future__ import annotations

import argparse
import math
import sys
from pathlib import Path

EXAMPLES = """\
examples:
  python -m labs broker                          on a free port; the data is deleted at the end
  python -m labs broker --port 9092              on this port
  python -m labs broker --directory ~/kafka      keep the data for the next time
  python -m labs broker --nodes 3                a cluster

The lessons and `python -m labs count` use it, instead of starting one, if this variable names it:
  export KAFKA_BOOTSTRAP_SERVERS=127.0.0.1:9092
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--port", type=port, metavar="N", help="port of the (first) node; default: a free one")
    parser.add_argument(
        "--directory", type=Path, metavar="DIR", help="where to keep the data; default: a temporary directory"
    )
    parser.add_argument("--nodes", type=int, metavar="N", default=1, help="number of nodes; default: 1")


def port(text: str) -> int:
    if not text.isdecimal() or not 1 <= int(text) <= 65_535:
        raise argparse.ArgumentTypeError(f"{text} is not a port: a port is a number from 1 to 65535")
    return int(text)


def run(arguments: argparse.Namespace) -> int:
    from labs.commands.console import plain_console
    from labs.equipment.broker import Broker
    from labs.equipment.node import BrokerError
    from labs.equipment.waiting import eventually

    console = plain_console(stderr=True)
    directory = arguments.directory and arguments.directory.expanduser()
    try:
        broker = Broker(nodes=arguments.nodes, port=arguments.port, directory=directory)
        try:
            with console.status("Starting the broker"):
                broker.start()
            for node in broker.nodes:
                console.print(f"Log: {node.log_file}", soft_wrap=True)
            console.print("Ctrl-C ends it" + ("" if directory else " and deletes its data"))
            print(broker.bootstrap_servers, flush=True)  # last: a program that reads it may end this one at once
            dead = eventually(lambda: [node for node in broker.nodes if not node.pid], timeout=math.inf, interval=0.5)
            raise BrokerError(f"the broker ended, and this program did not end it.\n{dead[0].last_lines()}")
        finally:
            broker.close()
    except KeyboardInterrupt:
        print("stopped", file=sys.stderr)
        return 0
