"""One process at a time in a directory: whoever comes second waits, and finds what the first has made there."""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Iterator
from pathlib import Path


@contextlib.contextmanager
def alone_in(directory: Path) -> Iterator[None]:
    """Make the directory if need be, and wait until no other process is inside of this. Raises OSError.

    The directory itself is locked, so no file is left; a process that dies lets go.
    """
    directory.mkdir(parents=True, exist_ok=True)
    handle = os.open(directory, os.O_RDONLY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)
