"""Show the operations room as a page on this machine: a real Kafka and a real Spark, live, to be struck by hand.

The page opens in your browser and needs the token in the address that is printed. There is one room at a time; it ends
soon after its tab is closed, and a reload opens a new one.
"""

from __future__ import annotations

import argparse
import signal
import sys

EXAMPLES = """\
examples:
  python -m labs room                            one broker, the sink of lesson 06
  python -m labs room --nodes 3 --spare          a cluster, and a driver kept warm
  python -m labs room --stage "+ checkpoint"     what the lessons climb, step by step
  python -m labs room --no-browser --port 8765   print the address, at a port you know
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    from labs.commands.broker import port

    parser.add_argument("--port", type=port, metavar="N", help="port of the page; default: a free one")
    parser.add_argument("--no-browser", action="store_true", help="print the address, and open no browser")


def run(arguments: argparse.Namespace) -> int:
    from labs.commands.broker import interrupt
    from labs.commands.console import plain_console
    from labs.room.page import RoomPage

    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, interrupt)
    console = plain_console(stderr=True)
    try:
        page = RoomPage({}, arguments.port, browser=not arguments.no_browser)
        try:
            with console.status("Starting the page's server"):
                page.await_ready()
            console.print("Ctrl-C ends it")
            print(page.address, flush=True)  # last: a program that reads it may end us at once
            page.await_end()
        finally:
            page.close()
    except KeyboardInterrupt:
        print("stopped", file=sys.stderr)
        return 0
