"""The command that is judged, as a process group. `job_session.py` decides when it is killed and started again.

Guarantee: after `close`, no process that the command started is running. A process that has left the process group,
such as a daemon, is found by its environment variable GROUP, whose value is different in each run. The file with the
command's output is emptied when it is larger than LARGEST_LOG; its size is checked every LOOK_EVERY seconds.
Limitations: a process that empties its own environment is not found.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import psutil

from labs.engines.engine import Running, Work
from labs.equipment.child_process import ChildProcess
from labs.equipment.plain_text import one_line
from labs.equipment.waiting import eventually
from labs.judging.engine_session import EngineStopped

LARGEST_LOG = 16 << 20  # bytes
TAIL = 1 << 14  # bytes at the end of the log that are searched for the last message
GRACE = 10.0  # seconds that a job has after SIGTERM
LOOK_EVERY = 0.5  # seconds between two looks at the size of the log
ROUNDS = 20  # how often at most to look for processes that have left the process group
# The last line of a stack trace of Node, Java or Go, and the line above it that names the error.
FRAME = re.compile(r"at |\.\.\. \d+ more$|[}\])]|Node\.js v|\S+\.go:\d+|exit status \d+$")
ERROR = re.compile(r'Uncaught |Caused by: |Exception in thread "|panic: |fatal error: |[\w.]*(Error|Exception)\b')


def contract(work: Work) -> dict[str, str]:
    """Return the environment variables that a job gets; docs/judge.md explains them."""
    return {
        "KAFKA_BOOTSTRAP_SERVERS": work.bootstrap_servers,
        "SOURCE_TOPIC": work.source_topic,
        "SINK_TOPIC": work.sink_topic,
        "CHECKPOINT_DIR": str(work.directory / "checkpoint"),
        "GROUP": work.name,
    }


class CommandNotFound(ValueError):
    """The command's program does not exist, or is not executable."""


class Job:
    """A user's command, with the methods of an `Engine`. `remarks` are lines about what else happened in its run."""

    title = promise = notes = ""
    installed_apart = False

    def __init__(self, command: Sequence[str], name: str = "the job"):
        if not command or not shutil.which(command[0]):
            program = one_line(command[0]) if command else ""
            if command and os.path.isfile(command[0]):
                raise CommandNotFound(
                    f"{program} is not executable: name its interpreter, as in `python3 {program}`, or chmod +x it"
                )
            raise CommandNotFound(f"there is no program {program!r}; expected a command")
        self.name, self.command = name, list(command)
        self.remarks: list[str] = []

    def settings(self, *_: object, **__: object) -> tuple:
        """Return no settings: the lab does not configure a user's job."""
        return ()

    def start(self, work: Work) -> Running:
        """Start the job, or start it again, in this process's working directory."""
        try:
            (work.directory / "checkpoint").mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise EngineStopped(f"{self.name} has replaced its CHECKPOINT_DIR: {error.strerror}") from error
        return RunningJob(self.command, work.directory / "output.log", contract(work), self.remark)

    def remark(self, line: str) -> None:
        """Add a remark, unless there is the same one already."""
        if line not in self.remarks:
            self.remarks.append(line)


def last_message(output: str) -> str:
    """Return the last line of an output, in words; at the end of a stack trace, the line that names the error."""
    lines = [line.strip() for line in output.split("\n") if line.strip()]
    if not lines:
        return "it printed nothing"
    errors = [line for line in lines if ERROR.match(line)] if FRAME.match(lines[-1]) else []
    return f"it printed: {one_line((errors or lines)[-1])}"


class RunningJob(ChildProcess):
    """The processes of a started command."""

    def __init__(self, command: list[str], log: Path, variables: Mapping[str, str], remark: Callable[[str], object]):
        self._variables, self._remark = dict(variables), remark
        self._looked = time.monotonic()
        super().__init__(command, log, env={**os.environ, **variables}, stdin=None)

    @property
    def running(self) -> bool:
        if time.monotonic() - self._looked > LOOK_EVERY:
            self._looked = time.monotonic()
            self._cut_log()
        return super().running

    def kill(self) -> None:
        """Send SIGKILL to all processes of the command, and wait until they have ended."""
        super().kill()
        self._kill_strays()

    def stop(self, patience: float = GRACE, number: int = signal.SIGTERM) -> None:
        """End the command: send the signal `number`, wait at most `patience` seconds, and kill what still runs."""
        try:
            self.signal(number)
            self.resume()
            # The whole group: a shell may end at once, and the job that it runs a moment later.
            eventually(lambda: not (self.running or self.has_group), patience)
        except TimeoutError:
            self._remark(f"it did not end within {patience:g} s after SIGTERM, and was killed")
        finally:  # also at a second Ctrl-C
            self.kill()

    def close(self) -> None:
        """Kill the command if it still runs."""
        self.kill()
        self._cut_log()

    def last_line(self) -> str:
        """Return the last message that the command printed, in words and in printable characters."""
        with contextlib.suppress(OSError), self.log_file.open("rb") as log:
            log.seek(max(0, log.seek(0, os.SEEK_END) - TAIL))
            return last_message(log.read().decode(errors="replace"))
        return last_message("")

    def _cut_log(self) -> None:
        """Empty a log that is too large. The command appends to it, so its next output is at the beginning."""
        with contextlib.suppress(OSError):
            if self.log_file.stat().st_size > LARGEST_LOG:
                os.truncate(self.log_file, 0)
                self._remark(f"it printed more than {LARGEST_LOG >> 20} MB; that output was deleted")

    def _kill_strays(self) -> None:
        """Kill the processes of this run that have left its process group."""
        killed: set[int] = set()
        for _ in range(ROUNDS):  # while they are killed, they may start others
            strays = [each for each in psutil.process_iter() if self._is_stray(each)]
            if not strays:
                break
            for each in strays:
                with contextlib.suppress(psutil.Error):
                    each.kill()
            psutil.wait_procs(strays, timeout=10)
            killed.update(each.pid for each in strays)
        if killed:
            self._remark(f"{len(killed)} of its processes had left its process group; they were killed, too")

    def _is_stray(self, process: psutil.Process) -> bool:
        with contextlib.suppress(psutil.Error, OSError):
            return process.environ().get("GROUP") == self._variables["GROUP"]
        return False
