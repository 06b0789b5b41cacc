"""Whether a process runs, as tests ask it of what was killed."""

from __future__ import annotations

import psutil


def runs(pid: int) -> bool:
    """Tell whether a process exists and has not ended.

    A zombie has: where process 1 of a container does not collect its children, it stays one.
    """
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False
