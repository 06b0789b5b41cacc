"""A child process of the lab: a broker, a Spark daemon, a database, a job, a student's code.

Guarantee: when this process ends, however it ends, so do the child and its process group, paused or not, and then the
directory `leftovers` is deleted. Nobody else is ever signalled. Where it stops: what leaves the group (PostgreSQL's own
children do, and end with their parent). POSIX only (Linux and macOS).
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
from pathlib import Path
from typing import IO, Any

import psutil

from labs.equipment.eventually import eventually
from labs.equipment.interrupts import interrupts_wait
from labs.equipment.leash import Leash

ORDERLY = signal.SIGTERM  # what ends a process in its own time, unless it wants another signal for that
ROUTINE = re.compile(r"\t|\S+ INFO ")  # lines of a Java log that seldom tell why a process ended


class ChildProcess:
    """`command` in a process group of its own, its output appended to `log_file`; `options` are Popen's."""

    def __init__(self, command: list[str], log_file: Path, leftovers: Path | None = None, **options: Any):
        self.log_file = log_file
        try:
            with interrupts_wait(), log_file.open("ab") as log:  # or nobody would know what was started
                self._start(command, log, leftovers, options)
        except KeyboardInterrupt:
            self.kill()
            raise

    def _start(self, command: list[str], log: IO[bytes], leftovers: Path | None, options: dict[str, Any]) -> None:
        self._log_start, self._leash = log.tell(), Leash(leftovers)
        try:
            # A session of its own: Ctrl-C is for this process, which ends its children in its own time.
            self._process = self._leash.start(command, stdout=log, stderr=log, start_new_session=True, **options)
        except BaseException:
            self._leash.release()
            raise
        self.group = self._process.pid

    @property
    def pid(self) -> int | None:
        """The process id while the process exists, paused or not, else None."""
        return self._process.pid if self.exit_code is None else None

    @property
    def exit_code(self) -> int | None:
        """The exit code, or the number of the signal that ended it with a minus; None while it exists."""
        code = self._process.poll()
        if code is not None and not self.has_group:
            self._leash.release()
        return code

    @property
    def has_group(self) -> bool:
        """Whether anything of the process and what it started still runs: a child may outlive it for a while.

        What has ended counts no more, though whoever inherited it has not asked how: that may take an init a second,
        and the first process of a container never does it.
        """
        try:
            os.killpg(self.group, 0)
        except ProcessLookupError:
            return False
        except PermissionError:  # somebody else's, as macOS says of one that is just ending
            pass
        # Twice, since one that is just being forked is not in the first list.
        return any(_runs_in(self.group, pid) for _ in range(2) for pid in psutil.pids())

    @property
    def paused(self) -> bool:
        """Whether the process is stopped by SIGSTOP, whoever sent it."""
        with contextlib.suppress(psutil.NoSuchProcess):
            return self.pid is not None and psutil.Process(self.pid).status() == psutil.STATUS_STOPPED
        return False

    def wait(self, timeout: float | None = None) -> int:
        """Wait for the end, and return the exit code. Raises subprocess.TimeoutExpired after `timeout` seconds."""
        code = self._process.wait(timeout)
        _ = self.exit_code  # lets the leash go
        return code

    def finish(self, timeout: float | None = None) -> int:
        """Wait for the end as `wait` does; what is raised meanwhile, such as KeyboardInterrupt, is its end."""
        try:
            return self.wait(timeout)
        except BaseException:
            self.kill()
            raise

    def signal(self, number: int) -> None:
        """Send a signal to the process and to what it started, if any of it still exists."""
        if self.pid is not None or self.has_group:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self.group, number)

    def kill(self) -> None:
        """SIGKILL the process and what it started, and wait until all of it is gone."""
        with interrupts_wait():
            self.signal(signal.SIGKILL)
            self._process.wait()
            eventually(lambda: not self.has_group, interval=0.01)
            self._leash.release()

    def stop(self, patience: float = 30.0, number: int = ORDERLY) -> None:
        """Signal the process and what it started, wait `patience` seconds at most, and kill what is left."""
        self.signal(number)
        self.resume()  # while paused it would not hear
        try:
            self._process.wait(patience)
        except subprocess.TimeoutExpired:
            pass
        finally:
            self.kill()

    def pause(self) -> None:
        """SIGSTOP: the process is frozen, all of it when this returns, and does not know it."""
        self.signal(signal.SIGSTOP)
        if self.pid is not None:  # its other threads go on until the first has got it
            eventually(lambda: self.paused or self.pid is None)

    def resume(self) -> None:
        """SIGCONT: the process goes on where it was."""
        self.signal(signal.SIGCONT)

    def output(self) -> str:
        """Return what the process has printed so far; nothing if the file is gone."""
        with contextlib.suppress(OSError), self.log_file.open(errors="replace") as log:
            log.seek(self._log_start)
            return log.read()
        return ""

    def last_line(self) -> str:
        """Return the last line that the process has printed."""
        lines = self.output().strip().splitlines()
        return lines[-1] if lines else "it printed nothing"

    def last_lines(self, count: int = 15) -> str:
        """Return the end of what the process printed, less a log's routine, for an error message."""
        return f"Last lines of {self.log_file}:\n{last_lines(self.output(), count)}"


def _runs_in(group: int, pid: int) -> bool:
    """Tell whether a process of this id belongs to the group, and has not ended."""
    with contextlib.suppress(ProcessLookupError, PermissionError, psutil.Error):
        return os.getpgid(pid) == group and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    return False


def resident_bytes(pid: int) -> int:
    """Return how many bytes of memory a process and its descendants have now; shared pages count in each."""
    total = 0
    with contextlib.suppress(psutil.Error):
        process = psutil.Process(pid)
        for each in (process, *process.children(recursive=True)):
            with contextlib.suppress(psutil.Error):
                total += each.memory_info().rss
    return total


def last_lines(text: str, count: int = 15) -> str:
    """Return the last lines that are no routine of a Java log, indented; all of them if there is nothing else."""
    lines = text.splitlines()
    telling = [line for line in lines if not ROUTINE.match(line)]
    return "\n".join(f"  {line}" for line in (telling or lines)[-count:])
