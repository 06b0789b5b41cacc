"""Waits for a condition, instead of a fixed sleep; and for another process to leave a directory."""

from __future__ import annotations

import contextlib
import fcntl
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
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


@contextlib.contextmanager
def alone_in(directory: Path) -> Iterator[None]:
    """Create the directory if necessary, and wait until no other process is in such a block for it. Raises OSError.

    The directory itself is locked, so no lock file is left; the lock of a process that dies is released.
    """
    directory.mkdir(parents=True, exist_ok=True)
    handle = os.open(directory, os.O_RDONLY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)
