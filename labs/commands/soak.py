"""Repeat for hours what the tests do once: chaos, sessions of the room, model against Kafka, Real-Time Mode, tests.

Ten seeds of three minutes take about 50 minutes, and more on a cluster whose executors write; ten sessions about 15,
the kills about 15, a hundred repeats of the crash tests about three hours on two cores. The long tests with all their
parameters, including each lesson and each change of a lesson, take some hours too.
It needs a checkout with the tests, and continues after a failure; at the end it lists all failures with the command
that repeats each.
"""

from __future__ import annotations

import argparse
import shlex
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

EXAMPLES = """examples:
  python -m labs soak                                      all of it, for a night
  python -m labs soak --seeds 1 --sessions 1 --walks 1 --kills 3 --no-variants --repeats 1  a trial run

The exit code is 0 only if every audit was valid and every test passed.
"""
ROOT = Path(__file__).parents[2]
CRASH_TESTS = ("tests/sink/test_crashes.py", "tests/sink/test_marker.py", "tests/pipeline/test_two_phase.py")
BY_EXECUTORS = ("--executors", "2", "--sink", "by-executors", "--least", "driver=10", "executor=5", "broker=2")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--seeds", type=int, default=10, metavar="N", help="chaos runs (default: %(default)s)")
    parser.add_argument(
        "--first-seed", type=int, default=1, metavar="SEED", help="seed of the first chaos run (default: %(default)s)"
    )
    parser.add_argument(
        "--minutes", type=float, default=3.0, help="minutes of faults in each chaos run (default: %(default)g)"
    )
    parser.add_argument(
        "--sessions", type=int, default=10, metavar="N", help="sessions of the room (default: %(default)s)"
    )
    parser.add_argument(
        "--walks", type=int, default=100, metavar="N", help="random walks of the sink (default: %(default)s)"
    )
    parser.add_argument(
        "--kills", type=int, default=30, metavar="N", help="kills at a point, in Real-Time Mode (default: %(default)s)"
    )
    parser.add_argument(
        "--variants", action=argparse.BooleanOptionalAction, default=True, help="all parameters of the long tests"
    )
    parser.add_argument(
        "--repeats", type=int, default=100, metavar="N", help="repeats of the tests (default: %(default)s)"
    )
    parser.add_argument(
        "--tests", nargs="+", default=CRASH_TESTS, metavar="PATH", help="tests to repeat (default: the crash tests)"
    )
    parser.add_argument("--output", type=Path, default=Path("out/soak"), metavar="DIR", help="(default: %(default)s)")


def run(arguments: argparse.Namespace) -> int:
    missing = [test for test in arguments.tests if arguments.repeats and not (ROOT / test.partition("::")[0]).exists()]
    if missing:
        raise ValueError(f"{missing[0]} is not in {ROOT}; expected a path of tests in a checkout of the lab")
    output = arguments.output.resolve()
    output.mkdir(parents=True, exist_ok=True)
    failed, done = [], 0
    for name, command in rounds(arguments, output):
        began, log = time.monotonic(), output / f"{name}.log"
        with log.open("wb") as file:
            code = subprocess.run(command, cwd=ROOT, stdin=subprocess.DEVNULL, stdout=file, stderr=file).returncode
        done += 1
        verdict = "passed" if code == 0 else f"FAILED with exit code {code}: {log}"
        print(f"{time.strftime('%H:%M:%S')}  {name}  {time.monotonic() - began:.0f} s  {verdict}", flush=True)
        if code == 0:
            log.unlink()
        else:
            failed.append(command)
    print(f"{done - len(failed)} passed, {len(failed)} failed")
    for command in failed:
        print(f"again: {shlex.join(command)}")
    return 1 if failed or not done else 0


def rounds(arguments: argparse.Namespace, output: Path) -> Iterator[tuple[str, list[str]]]:
    """Yield each round's name and its command: chaos, sessions, model, Real-Time Mode, long tests, then the repeats."""
    python = [sys.executable, "-m"]
    for seed in range(arguments.first_seed, arguments.first_seed + arguments.seeds):
        options = ["--seed", str(seed), "--minutes", f"{arguments.minutes:g}", "--output", str(output)]
        yield f"chaos-seed-{seed}", [*python, "labs", "chaos", *options]
        yield f"executors-seed-{seed}", [*python, "labs", "chaos", *BY_EXECUTORS, *options]
    if arguments.sessions:
        yield "sessions", [*python, "labs.room.script", "--seeds", str(arguments.sessions)]
    if arguments.walks:
        yield "replays", [*python, "labs", "model", "--replay", "--times", "10"]
        yield "walks", [*python, "labs", "model", "--walks", str(arguments.walks)]
    if arguments.kills:
        yield "real-time", [*python, "labs.runs.real_time_kills", "--kills", str(arguments.kills)]
    if arguments.variants:
        yield "variants", ["make", "tests", "TESTS=-m long"]
    for n in range(1, arguments.repeats + 1):
        yield f"repeat-{n}", [*python, "pytest", "-q", "-p", "no:cacheprovider", *arguments.tests]
