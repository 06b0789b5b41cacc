"""Show the operations room as a page on this machine: a real Kafka and a real Spark, live, to be struck by hand.

The page needs the token that stands in the address. There is one room at a time: a second tab is refused while the
first is open. A room ends soon after its tab is closed; a reload opens another.
"""

from __future__ import annotations

import argparse
import sys

EXAMPLES = """examples:
  python -m labs room                              one broker, the sink as it should be
  python -m labs room --nodes 3 --spare            a cluster, and a driver kept warm
  python -m labs room --stage "+ transactions"     the sink without its marker: strike it, and it doubles
  python -m labs room --no-browser --port 8765     at a port you know; print the address, and open no browser
"""
OPTIONS = ("stage", "nodes", "executors", "rate", "spare", "seed")  # of the room


def add_arguments(parser: argparse.ArgumentParser) -> None:
    from labs.commands.broker import port
    from labs.commands.model import whole_number
    from labs.runs.staircase import STAGES

    stages = [stage.name for stage in STAGES]
    parser.add_argument("--stage", choices=stages, default=stages[-1], help="the sink at first (default: %(default)s)")
    parser.add_argument("--nodes", type=whole_number, default=1, metavar="N", help="brokers (default: 1)")
    parser.add_argument("--executors", type=int, default=0, metavar="N", help="run Spark on N executor processes")
    parser.add_argument("--rate", type=whole_number, default=40, metavar="N", help="records per second (default: 40)")
    parser.add_argument("--spare", action="store_true", help="keep a driver warm, to take over when the first dies")
    parser.add_argument("--seed", type=int, default=7, help="of the traffic (default: 7)")
    parser.add_argument("--port", type=port, metavar="N", help="port of the page (default: a free one)")
    parser.add_argument("--no-browser", action="store_true", help="print the address, and open no browser")


def run(arguments: argparse.Namespace) -> int:
    from labs.commands.console import plain_console
    from labs.room.page import RoomPage, cell_of

    console = plain_console(stderr=True)
    cell = cell_of({name: getattr(arguments, name) for name in OPTIONS})
    try:
        with RoomPage(cell, arguments.port, browser=not arguments.no_browser) as page:
            with console.status("Starting the page's server"):
                page.await_ready()
            console.print("Ctrl-C ends the room and its page")
            print(page.address, flush=True)  # last: a program that reads it may end us at once
            page.await_end()
    except KeyboardInterrupt:
        print("stopped", file=sys.stderr)
        return 0
