"""Show the operations room as a page on this machine: a live Kafka and Spark, with faults at the press of a button.

The page needs the token in the address. There is one room at a time: while the first tab is open, a second one is
refused. A room ends soon after its tab is closed; a reload opens another.
"""

from __future__ import annotations

import argparse
import sys
import webbrowser
from pathlib import Path

EXAMPLES = """examples:
  python -m labs room                              one broker, the sink as it should be
  python -m labs room --nodes 3                    a cluster of three brokers
  python -m labs room --stage "+ transactions"     the sink without its marker: after a crash it doubles
  python -m labs room --no-browser --port 8765     on this port; print the address, and open no browser
  python -m labs room --play my-session            play a recording that the room has saved, as a page to hand on
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
    parser.add_argument(
        "--spare",
        action=argparse.BooleanOptionalAction,
        default=True,
        help="keep a driver warm, to take over when the first dies (default: yes)",
    )
    parser.add_argument("--seed", type=int, default=7, help="seed of the traffic (default: 7)")
    parser.add_argument("--port", type=port, metavar="N", help="port of the page (default: a free one)")
    parser.add_argument(
        "--play",
        type=Path,
        metavar="FOLDER",
        help="start nothing: write the recording in this folder as one page, room.html, and open it",
    )
    parser.add_argument("--no-browser", action="store_true", help="print the address, and open no browser")


def run(arguments: argparse.Namespace) -> int:
    if arguments.play is not None:
        return play(arguments.play, browser=not arguments.no_browser)
    from labs.commands.console import plain_console
    from labs.room.page import RoomPage, cell_of
    from labs.room.room import check_options

    check_options(arguments.stage, arguments.nodes, arguments.executors, arguments.rate)
    console = plain_console(stderr=True)
    cell = cell_of({name: getattr(arguments, name) for name in OPTIONS})
    try:
        with RoomPage(cell, arguments.port, browser=not arguments.no_browser) as page:
            with console.status("Starting the page's server"):
                page.await_ready()
            console.print("Ctrl-C ends the room and its page")
            print(page.address, flush=True)  # last: a program that reads it may end this one at once
            page.await_end()
    except KeyboardInterrupt:
        print("stopped", file=sys.stderr)
        return 0


def play(folder: Path, browser: bool) -> int:
    """Write the page of a recording into its folder, print its path, and open it."""
    from labs.room.recording import load_recording, write_page

    page = write_page(load_recording(folder), (folder if folder.is_dir() else folder.parent).absolute())
    print(page)
    if browser and not webbrowser.open(page.as_uri()):
        print("no browser was found: open this file in one", file=sys.stderr)
    return 0
