"""Judge a job of your own, in any language: is it exactly once, under kills and other faults?"""

from __future__ import annotations

import argparse
import functools
import json
import os
import shlex
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from labs.judging.judgement import Judgement

UNKNOWN = 2  # the exit code when nothing could be judged

EXAMPLES = """examples:
  python -m labs judge -- python3 my_copy.py
  python -m labs judge --control "python3 my_copy_at_least_once.py" -- python3 my_copy.py
  python -m labs judge --workload transfer --seed 3 --html report.html -- node transfers.js
  python -m labs judge --faults kill,pause,cut,slow -- java Copy.java
  python -m labs judge --bootstrap-servers 127.0.0.1:9092 -- ./copy      on a Kafka of your own

The job gets KAFKA_BOOTSTRAP_SERVERS, SOURCE_TOPIC, SINK_TOPIC, CHECKPOINT_DIR and GROUP; docs/judge.md has the rest.
The exit code is 0 for valid, 1 for invalid, and 2 for unknown and for a mistake in the arguments.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    from labs.commands.model import whole_number
    from labs.judging.strikes import KINDS, PATIENCE
    from labs.judging.workloads import KILLS, WORKLOADS

    defaults = ", ".join(f"{workload} {kills}" for workload, kills in KILLS.items())
    parser.add_argument("--workload", choices=list(WORKLOADS), default="copy", help="(default: %(default)s)")
    parser.add_argument("--kills", type=int, metavar="N", help=f"how often to kill (default: {defaults})")
    kinds = "; ".join(f"{kind}: {meaning}" for kind, meaning in KINDS.items())
    parser.add_argument("--faults", default="kill", metavar="KIND,KIND", help=f"{kinds} (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=7, metavar="N", help="of input and strikes (default: %(default)s)")
    parser.add_argument("--control", metavar="COMMAND", help="a variant that is only at least once; must be doubled")
    parser.add_argument("--records", type=whole_number, metavar="N", help="records of the input")
    parser.add_argument("--partitions", type=whole_number, metavar="N", help="of both topics")
    parser.add_argument("--keys", type=whole_number, metavar="N", help="different keys in each partition")
    parser.add_argument("--rate", type=whole_number, metavar="N", help="records a second, while a strike comes")
    parser.add_argument("--size", type=whole_number, metavar="BYTES", help="of a record of the workload copy, at most")
    parser.add_argument("--nodes", type=whole_number, default=1, metavar="N", help="brokers (default: %(default)s)")
    own = "a Kafka of your own; kill, terminate and pause only"
    parser.add_argument("--bootstrap-servers", metavar="HOST:PORT", help=own)
    patience = "seconds without new results until it stops (default: %(default)g)"
    parser.add_argument("--patience", type=whole_number, default=PATIENCE, metavar="S", help=patience)
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--junit", type=Path, metavar="FILE", help="write the judgement as JUnit XML")
    parser.add_argument("--html", type=Path, metavar="FILE", help="write a page with the timeline of the strikes")
    parser.add_argument("job", nargs="+", metavar="COMMAND", help="after --: the job and its arguments")


def run(arguments: argparse.Namespace) -> int:
    from labs.equipment.plain_text import check_writable, plain

    try:
        from labs.commands.console import plain_console
        from labs.judge import judge
        from labs.judging.judgement import html, junit

        say = functools.partial(plain_console(stderr=True).print, soft_wrap=True)
        reports = [(file, of) for file, of in ((arguments.junit, junit), (arguments.html, html)) if file]
        for file, _ in reports:
            check_writable(file)
        found = judge(
            arguments.job,
            workload=arguments.workload,
            kills=arguments.kills,
            faults=_faults(arguments.faults, arguments.kills),
            seed=arguments.seed,
            control=None if arguments.control is None else _words(arguments.control),
            records=arguments.records,
            partitions=arguments.partitions,
            keys=arguments.keys,
            rate=arguments.rate,
            size=arguments.size,
            nodes=arguments.nodes,
            bootstrap_servers=arguments.bootstrap_servers,
            patience=arguments.patience,
            say=say,
        )
    except SystemExit:  # raised by rich if the reader of the progress has ended; its exit code would mean "invalid"
        return UNKNOWN
    except Exception as error:  # any error: exit code 1, that of a traceback, would mean that the job is invalid
        if os.environ.get("LABS_TRACEBACK"):
            raise
        known = isinstance(error, RuntimeError | OSError | ValueError)
        told = f"{error}" if known else f"{type(error).__name__}: {error}"
        print(f"python -m labs judge: {plain(told)}", file=sys.stderr)
        return UNKNOWN
    _write(found, reports)
    in_words = "\n".join(map(plain, str(found).split("\n")))  # line by line, since `plain` cuts a long text
    told = json.dumps(found.as_dict(), indent=1) if arguments.json else in_words  # JSON must not be cut
    try:
        print(told, flush=True)
    except OSError as error:  # it changes no verdict
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115
        if not isinstance(error, BrokenPipeError):
            print(f"python -m labs judge: {found.verdict}; more could not be printed: {error}", file=sys.stderr)
    return found.exit_code


def _faults(listed: str, kills: int | None) -> list[str]:
    faults = [each.strip() for each in listed.split(",") if each.strip()]
    if kills and "kill" not in faults:
        raise ValueError(f"--kills {kills}, but --faults does not contain kill: add it to --faults, or omit --kills")
    return faults


def _words(command: str) -> list[str]:
    try:
        return shlex.split(command)
    except ValueError as error:
        raise ValueError(f"--control {command!r}: {str(error).lower()}; expected a command as in a shell") from None


def _write(found: Judgement, reports: Sequence[tuple[Path, Callable[[Judgement], str]]]) -> None:
    """Write the reports. A report that cannot be written changes no verdict."""
    for file, report in reports:
        try:
            file.write_text(report(found), encoding="utf-8")
        except OSError as error:
            print(f"python -m labs judge: {file} was not written: {error.strerror or error}", file=sys.stderr)
