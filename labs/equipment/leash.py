"""A leash on a child process and on files: when this process dies, however it dies, the child and they are no more.

A small shell reads process ids from a pipe. The pipe ends when every holder of our end is gone, which happens
on SIGKILL too; then the shell kills the process named with its group, and deletes what it left. POSIX only (Linux and
macOS).
"""

from __future__ import annotations

import contextlib
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

WATCH = """
while read -r pid; do last=$pid; done
left=$2
while [ "$left" -gt 0 ] && kill -0 "$last" 2>/dev/null; do sleep 1; left=$((left - 1)); done
[ -z "$last" ] || kill -s KILL -- "$3$last" 2>/dev/null
[ -z "$1" ] || for _ in 1 2 3 4 5; do sleep 1; rm -rf "$1" && break; done  # while others still write there
"""
# The child names itself before it becomes the command, so it is never off the leash, not for a millisecond.
JOIN = 'echo $$ >&0; input=$1; shift; exec "$@" <"$input"'


class Leash:
    """Kills the child that `start` started, with its process group, if the current process ends before `release()`.

    Then it deletes the directory `leftovers`, also if no child was started. The child must lead a group of its own
    (`start_new_session`), or is killed alone, not being a `group`. It has `patience` seconds to end by itself first.
    A leash that nobody holds any more is as good as a process that has ended.
    """

    def __init__(self, leftovers: Path | None = None, patience: int = 0, group: bool = True):
        self._shell = subprocess.Popen(
            ["/bin/sh", "-c", WATCH, "leash", str(leftovers or ""), str(patience), "-" if group else ""],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
            bufsize=0,
        )

    def start(self, command: list[str], stdin: int | None = None, **options: Any) -> subprocess.Popen:
        """Start a child on the leash; `options` are Popen's.

        It reads from the pipe whose end is the file descriptor `stdin`, else it has no standard input.
        """
        source = "/dev/null"
        if stdin is not None:
            source = f"/dev/fd/{stdin}"
            options["pass_fds"] = (*options.get("pass_fds", ()), stdin)
        command = ["/bin/sh", "-c", JOIN, "sh", source, *command]
        return subprocess.Popen(command, stdin=self._shell.stdin, **options)

    def release(self) -> None:
        """Let the child go: call once it has ended, since its id may be given to another process. Twice is once."""
        self._shell.kill()
        self._shell.communicate()


@contextlib.contextmanager
def directory_on_a_leash(prefix: str) -> Iterator[Path]:
    """Make a temporary directory, and delete it at the end of the block or of this process, however that ends."""
    directory = Path(tempfile.mkdtemp(prefix=prefix))
    leash = Leash(directory)
    try:
        yield directory
    finally:
        shutil.rmtree(directory, ignore_errors=True)
        leash.release()
