"""Whether a process runs, as tests ask it of what was killed; and what it says."""

from __future__ import annotations

from typing import IO, AnyStr

import psutil


def runs(pid: int) -> bool:
    """Tell whether a process exists and has not ended.

    A zombie has: where process 1 of a container does not collect its children, it stays one.
    """
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def next_line(pipe: IO[AnyStr] | None) -> AnyStr:
    """Read a line from the standard output or error of a process, which must be a pipe."""
    assert pipe is not None
    return pipe.readline()
