"""A hot spare: a job with Python, JVM and session started, which reads nothing and fences nobody until it is told to.

It prints {"event": "warm"} and waits for one line on standard input: a JSON list of the arguments of `labs run`.
Guarantee: until then it has no address of Kafka, no checkpoint and no name, so that it cannot affect anything. It ends
when standard input ends, and so with the process at the other end.
"""

from __future__ import annotations

import argparse
import json
import os
import select
import sys
from collections.abc import Callable
from typing import NoReturn

from labs.equipment.interrupts import interrupts_wait
from labs.faults.fault import Fault

STDIN = 0


class BadOrder(ValueError):
    """The line on standard input is no valid order; the message says why."""


class Orders(argparse.ArgumentParser):
    """Parses arguments like those of a command line, but raises BadOrder for wrong ones."""

    def __init__(self, add_options: Callable[[argparse.ArgumentParser], None]):
        super().__init__(prog="labs run", add_help=False, allow_abbrev=False)
        add_options(self)

    def error(self, message: str) -> NoReturn:
        raise BadOrder(message)

    def read(self, line: bytes) -> argparse.Namespace:
        """Return the arguments in the line. Raises BadOrder."""
        try:
            words = json.loads(line)
        except ValueError as error:
            raise BadOrder(f"expected a JSON list of arguments, found no JSON: {line[:100]!r} ({error})") from None
        if not isinstance(words, list) or not all(isinstance(word, str) for word in words):
            raise BadOrder(f"expected a JSON list of arguments, each in quotes, not {line[:100]!r}")
        arguments = self.parse_args(words)
        try:
            for fault in arguments.fault:
                Fault.parse(fault)
        except ValueError as error:
            raise BadOrder(str(error)) from None
        return arguments


def wait_for_order(quick_start: bool = True) -> bytes:
    """Get warm unless there is an order already, and return the order unparsed; empty if standard input ended."""
    if not _is_told():
        _get_warm(quick_start)
    return sys.stdin.buffer.readline()


def _get_warm(quick_start: bool) -> None:
    """Start and warm up the session, and say so; stop as soon as there is an order. Raises KeyboardInterrupt."""
    from labs.equipment.spark import spark_session
    from labs.pipeline.query.warm_up import warm_up
    from labs.runs import staircase  # noqa: F401  the sinks, which take a second to import

    with interrupts_wait() as interrupted:  # else Ctrl-C would interrupt Python in the middle of a request to the JVM
        warm_up(spark_session(quick_start=quick_start), lambda: interrupted.is_set() or _is_told())
    if not _is_told():
        os.write(sys.stdout.fileno(), b'{"event": "warm"}\n')


def _is_told() -> bool:
    """Tell whether standard input has a line, or has ended."""
    return bool(select.select([STDIN], [], [], 0)[0])
