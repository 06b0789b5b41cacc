"""A job that is warm and waits to be told: Python, JVM and session are up, nothing is read, nobody is fenced.

It says {"event": "warm"} and waits for one line on standard input, a JSON list of the arguments that it would have been
started with. Guarantee: until then it has no address of Kafka, no checkpoint and no name, so that there is nothing it
could touch. The end of standard input, which comes with the end of whoever holds the other end, is its own.
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
    """What came on standard input cannot be carried out; the message says what and why."""


class Orders(argparse.ArgumentParser):
    """Reads arguments as the command line's are read; what is wrong with them is raised as BadOrder."""

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
            raise BadOrder(f"this is no JSON: {line[:100]!r} ({error})") from None
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
    """Get warm unless there is an order already, and return it as it came; nothing if standard input ended."""
    if not _is_told():
        _get_warm(quick_start)
    return sys.stdin.buffer.readline()


def _get_warm(quick_start: bool) -> None:
    """Start and warm up the session, and say so; leave off as soon as there is an order. Raises KeyboardInterrupt."""
    from labs.equipment.spark import spark_session
    from labs.pipeline.query.warm_up import warm_up
    from labs.runs import staircase  # noqa: F401  the sinks, which take a second to import

    with interrupts_wait() as interrupted:  # or Python would be interrupted in the middle of a question to the JVM
        warm_up(spark_session(quick_start=quick_start), lambda: interrupted.is_set() or _is_told())
    if not _is_told():
        os.write(sys.stdout.fileno(), b'{"event": "warm"}\n')


def _is_told() -> bool:
    """Tell whether a line waits on standard input, or its end."""
    return bool(select.select([STDIN], [], [], 0)[0])
