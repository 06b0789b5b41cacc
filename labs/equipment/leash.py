"""A leash on a child process: when this process dies, however it dies, the child is killed.

A small shell holds the other end of a pipe. It reads nothing until every holder of our end is gone, which
happens on SIGKILL too, then kills the child and deletes what it left. POSIX only (Linux and macOS).
"""

from __future__ import annotations

import subprocess
from pathlib import Path

WATCH = 'read -r _; kill -9 "$1" 2>/dev/null; [ -z "$2" ] || { sleep 1; rm -rf "$2"; }'


class Leash:
    """Kills process `pid` and deletes directory `leftovers` if the current process ends before `release()`."""

    def __init__(self, pid: int, leftovers: Path | None = None):
        self._shell = subprocess.Popen(
            ["sh", "-c", WATCH, "leash", str(pid), str(leftovers or "")],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )

    def release(self) -> None:
        """Let the child go: call once it has ended."""
        self._shell.kill()
        self._shell.communicate()
