"""Find the command, run it, and turn an expected error into one clear line."""

from __future__ import annotations

import argparse
import importlib
import io
import logging
import os
import signal
import sys
import warnings

from labs.equipment.foreign_packages import foreign_packages
from labs.equipment.interrupts import ended_as_by_ctrl_c
from labs.equipment.plain_text import plain

# Commands print their own messages; py4j would log a Ctrl-C, and the failures after it, with all stack traces.
NO_LOG = logging.NullHandler()

PROGRAM = "python -m labs"
INTERRUPTED = 130  # the exit code of a program that Ctrl-C ended

# In the order of --help: what it is for -> command -> what it does.
GROUPS = {
    "learn": {
        "desk": "lay out the lessons to work on: a folder of your own",
        "check": "judge your solution of an exercise",
        "progress": "show what you predicted, wrote and answered",
        "attack": "break a subtly wrong sink, by orders of your own",
    },
    "show": {
        "demo": "count a log, then climb the staircase: crash, restart, audit, plot",
        "room": "show the operations room: the live stream, with faults at the press of a button",
        "slides": "make a page to project: one screen for each lesson",
        "chaos": "inject faults at random, and audit the results",
        "model": "try every order of crashes, delays and retries: a model of each stage",
        "engines": "compare Spark, Flink, Quix Streams and Kafka Streams under the same auditor",
    },
    "use": {
        "doctor": "check that this machine can run the lab",
        "judge": "judge a job of your own, in any language, under kills and other faults",
        "count": "count the requests per IP of an access log",
        "generate": "write a seeded access log",
        "run": "run the IP count as a job of its own",
        "broker": "run a Kafka broker until Ctrl-C",
        "cluster": "run a Spark cluster until Ctrl-C",
    },
    "develop": {
        "setup": "fetch and check the jars",
        "notebooks": "execute all lessons in place",
        "site": "build the course as static pages",
        "benchmark": "measure throughput and latency on this machine",
        "soak": "repeat for hours what the tests do once",
    },
}
COMMANDS = {name: purpose for group in GROUPS.values() for name, purpose in group.items()}


def main(argv: list[str] | None = None) -> int:
    """Run `python -m labs` with `argv` and return its exit code."""
    if "PYTHONWARNINGS" in os.environ:  # a developer's setting; a warning turned into an error would end this program
        warnings.simplefilter("ignore")
    argv = sys.argv[1:] if argv is None else argv
    parser = argparse.ArgumentParser(
        prog=PROGRAM,
        usage=f"{PROGRAM} COMMAND [-h] …",
        description=f"The exactly-once lab.\n\n{listed()}",
        epilog="Help on one command: python -m labs COMMAND --help",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    commands = parser.add_subparsers(dest="command", prog=PROGRAM, metavar="COMMAND", help=argparse.SUPPRESS)
    wanted = argv[:1]
    for name in COMMANDS:
        sub = commands.add_parser(name, formatter_class=argparse.RawDescriptionHelpFormatter)
        if wanted == [name]:  # so the others are not imported
            module = importlib.import_module(f"labs.commands.{name}")
            sub.description, sub.epilog = module.__doc__, getattr(module, "EXAMPLES", None)
            module.add_arguments(sub)
    arguments, unknown = parser.parse_known_args(argv)
    if arguments.command is None and not unknown:
        parser.print_help()
        return 0
    if unknown:  # argparse itself would show the usage of `python -m labs`
        commands.choices.get(arguments.command, parser).error(f"unrecognized arguments: {' '.join(unknown)}")
    failed = getattr(module, "UNKNOWN", 1)  # an exit code of 1 says that a judged job is invalid
    print_whatever_the_locale()
    logging.getLogger().addHandler(NO_LOG)
    try:
        if signal.getsignal(signal.SIGINT) is signal.SIG_DFL:  # by __main__
            signal.signal(signal.SIGINT, signal.default_int_handler)
        check_directory()
        with ended_as_by_ctrl_c():
            code = module.run(arguments)
            if sys.stdout is not None:  # None if the shell has closed it
                sys.stdout.flush()  # if Python itself flushed at its end, a failure would print a traceback
            return code
    except KeyboardInterrupt:
        print("\nstopped", file=sys.stderr)
        return INTERRUPTED
    except BrokenPipeError:
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115  the reader of the output has ended
        return failed
    except (ImportError, AttributeError) as error:
        if not (foreign := foreign_packages()):
            raise
        print(f"python -m labs {arguments.command}: {foreign}\n({error})", file=sys.stderr)
        return failed
    except (RuntimeError, OSError, ValueError) as error:
        if os.environ.get("LABS_TRACEBACK"):
            raise
        print(f"python -m labs {arguments.command}: {plain(str(error))}", file=sys.stderr)
        return failed


def listed() -> str:
    """Return the commands in their groups, each with what it does."""
    width = max(map(len, COMMANDS))
    return "\n".join(
        line
        for group, purposes in GROUPS.items()
        for line in (f"{group}:", *(f"  {name:<{width}}  {purpose}" for name, purpose in purposes.items()), "")
    ).rstrip()


def print_whatever_the_locale() -> None:
    """Print a character that the terminal's encoding lacks, such as an accent, as `\\x..` instead of failing."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def check_directory() -> None:
    """Raise RuntimeError if the current directory has been deleted: no Java starts there."""
    try:
        os.getcwd()
    except FileNotFoundError as error:
        raise RuntimeError("the current directory has been deleted; change to another one") from error
