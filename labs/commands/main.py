"""Find the command, run it, and turn an expected error into one clear line."""

from __future__ import annotations

import argparse
import importlib
import io
import logging
import os
import sys
import warnings

from labs.equipment.foreign_packages import foreign_packages
from labs.equipment.interrupts import ended_as_by_ctrl_c
from labs.equipment.plain_text import plain

# Commands say themselves what there is to say; py4j would log a Ctrl-C, and what fails after it, with all stacks.
NO_LOG = logging.NullHandler()

INTERRUPTED = 130  # the exit code of a program that Ctrl-C ended

# In the order of --help: command -> what it does.
COMMANDS = {
    "demo": "count a log, then climb the staircase: crash, restart, audit, plot",
    "count": "count the requests per IP of an access log",
    "generate": "write a seeded access log",
    "chaos": "break everything at random, and audit what came of it",
    "model": "try every order of crashes, delays and retries: a model of each stage",
    "attack": "break a sink that is subtly wrong, by orders of your own",
    "room": "show the operations room: the stream live, to be struck by hand",
    "run": "run the IP count as a job of its own",
    "broker": "run a Kafka broker until Ctrl-C",
    "cluster": "run a Spark cluster until Ctrl-C",
    "desk": "lay out the lessons to work on: a folder of your own",
    "progress": "show what you predicted, wrote and answered",
    "slides": "make a page to project: one screen a lesson",
    "check": "judge your solution of an exercise",
    "doctor": "check that this machine can run the lab",
    "engines": "compare Spark, Flink, Quix Streams and Kafka Streams before the same judge",
    "bench": "measure throughput and latency on this machine",
    "soak": "repeat for hours what the tests do once",
    "setup": "fetch and check the jars",
    "notebooks": "execute all lessons in place",
    "site": "build the course as static pages",
}


def main(argv: list[str] | None = None) -> int:
    """Run `python -m labs` with `argv` and return its exit code."""
    if "PYTHONWARNINGS" in os.environ:  # of somebody who develops something; turned into errors, they end this one
        warnings.simplefilter("ignore")
    parser = argparse.ArgumentParser(
        prog="python -m labs",
        description="The exactly-once lab.",
        epilog="Help on one: python -m labs COMMAND --help",
    )
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    wanted = (sys.argv[1:] if argv is None else argv)[:1]
    for name, purpose in COMMANDS.items():
        sub = commands.add_parser(name, help=purpose, formatter_class=argparse.RawDescriptionHelpFormatter)
        if wanted == [name]:  # the others need not be imported
            module = importlib.import_module(f"labs.commands.{name}")
            sub.description, sub.epilog = module.__doc__, getattr(module, "EXAMPLES", None)
            module.add_arguments(sub)
    arguments = parser.parse_args(argv)
    print_whatever_the_locale()
    logging.getLogger().addHandler(NO_LOG)
    try:
        check_directory()
        with ended_as_by_ctrl_c():
            return module.run(arguments)
    except KeyboardInterrupt:
        print("\nstopped", file=sys.stderr)
        return INTERRUPTED
    except BrokenPipeError:
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115  the reader of our output has left
        return 1
    except (ImportError, AttributeError) as error:
        if not (foreign := foreign_packages()):
            raise
        print(f"python -m labs {arguments.command}: {foreign}\n({error})", file=sys.stderr)
        return 1
    except (RuntimeError, OSError, ValueError) as error:
        if os.environ.get("LABS_TRACEBACK"):
            raise
        print(f"python -m labs {arguments.command}: {plain(str(error))}", file=sys.stderr)
        return 1


def print_whatever_the_locale() -> None:
    """Print as `\\x..` what the terminal's encoding does not have, such as a file name's accent, instead of failing."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def check_directory() -> None:
    """Raise RuntimeError if the current directory has been deleted: no Java starts there."""
    try:
        os.getcwd()
    except FileNotFoundError as error:
        raise RuntimeError("the current directory has been deleted; change to another one") from error
