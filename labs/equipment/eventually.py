"""Waiting for a condition instead of sleeping and hoping."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

Value = TypeVar("Value")


def eventually(condition: Callable[[], Value | None], timeout: float = 30, interval: float = 0.05) -> Value:
    """Call `condition` until it returns something true, and return that.

    `timeout` and `interval` are seconds. An exception inside `condition` counts as "not yet".
    Raises TimeoutError, which names the condition and the last value or exception that it saw.
    """
    deadline = time.monotonic() + timeout
    last: Value | Exception | None
    while True:
        try:
            last = condition()
            if last:
                return last
        except Exception as error:
            last = error
        if time.monotonic() >= deadline:
            name = getattr(condition, "__name__", "condition")
            raise TimeoutError(f"{name} was not met within {timeout:g} s; last seen: {last!r}")
        time.sleep(interval)
