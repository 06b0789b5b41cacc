"""A child process of the lab: a broker, a Spark daemon, a database, a job, a student's code; and its environment.

Every JVM and every Python of the lab gets its environment variables here. They leave out what this machine has set for
another Spark or Hadoop, or for all of its JVMs, Pythons or shells. Proxies, PATH and JAVA_HOME stay, and so do the
lab's own settings, KAFKA_BOOTSTRAP_SERVERS and SPARK_MASTER. Limitations: a Spark under spark-submit, or on a cluster
that SPARK_MASTER names, keeps what was set for it.

Guarantee: when this process ends, however it ends, so do the child and its process group, paused or not, and then the
directory `leftovers` is deleted. No other process is ever signalled. Limitations: a process that leaves the group is
not killed (PostgreSQL's own children leave it, and end with their parent). POSIX only (Linux and macOS).

A `ChildReaper` keeps this guarantee. It starts a small shell, which reads the child's process id from a pipe. The pipe
ends when no process holds its writing end any more, that is when this process has ended, also by SIGKILL. Then the
shell kills the child with its process group, and deletes `leftovers`.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Any

import psutil

from labs.equipment.interrupts import interrupts_wait
from labs.equipment.waiting import eventually

ROOT = Path(__file__).resolve().parents[2]
TO_DIE = 60.0  # seconds for the kernel to end a process after SIGKILL
UTF8 = {"LC_ALL": "C.UTF-8"}  # in the C locale, a JVM cannot use a directory such as café/
OF_SPARK = ("SPARK_", "PYSPARK_", "_PYSPARK_", "HADOOP_", "YARN_", "HIVE_", "LOG4J_")
OF_OTHER_ENGINES = ("FLINK_", "PYFLINK_", "QUIX__")
# JVMs read some of these, and shells the others: Spark's scripts are bash scripts.
OF_JAVA = ("JAVA_TOOL_OPTIONS", "_JAVA_OPTIONS", "JDK_JAVA_OPTIONS", "JDK_JAVAC_OPTIONS", "OPENJ9_JAVA_OPTIONS")
OF_JAVA_AND_SHELLS = (*OF_JAVA, "IBM_JAVA_OPTIONS", "CLASSPATH", "BASH_ENV", "ENV", "CDPATH", "SHELLOPTS", "BASHOPTS")
OF_THE_LAB = ("SPARK_MASTER",)
# These only say where Python puts its bytecode.
KEPT_OF_PYTHON = ("PYTHONDONTWRITEBYTECODE", "PYTHONPYCACHEPREFIX")
OF_OUR_PYTHON = {"PYTHONPATH": str(ROOT), "PYTHONUTF8": "1", "PYTHONUNBUFFERED": "1", "PYTHONSAFEPATH": "1"}
OF_A_GATEWAY = ("PYSPARK_GATEWAY_PORT", "PYSPARK_GATEWAY_SECRET")  # for the JVM of one driver only


def for_program(**own: str) -> dict[str, str]:
    """Return the environment of a JVM of the lab, a database or another engine's program; `own` adds variables."""
    return {**_without(lambda name: is_for_another(name) or _is_for_another_python(name)), **UTF8, **own}


def for_python(**own: str) -> dict[str, str]:
    """Return the environment of a Python that runs the lab's own modules; `own` adds variables.

    That Python imports no module from its working directory, unless PYTHONSAFEPATH is empty. Variables for Spark stay:
    `spark_session` decides about them, since it knows the master.
    """
    kept = _without(lambda name: _is_for_another_python(name) or name in OF_A_GATEWAY)
    return {**kept, **UTF8, **OF_OUR_PYTHON, **own}


def is_for_another(name: str) -> bool:
    """Tell whether a variable is meant for a Spark, a Hadoop, a JVM or a shell that is not the lab's."""
    if name.startswith("BASH_FUNC_") or name in OF_JAVA_AND_SHELLS:
        return True
    return name.upper().startswith((*OF_SPARK, *OF_OTHER_ENGINES)) and name not in OF_THE_LAB


def drop_what_is_for_another() -> None:
    """Delete variables that are not for the lab's Spark from this process's environment: PySpark reads them, too."""
    for name in list(filter(is_for_another, os.environ)):
        del os.environ[name]


def cache(name: str, below: str | None = None) -> Path:
    """Return the user's cache directory of this name: in `below`, if that is absolute, else in ~/.cache.

    If it does not exist and cannot be created, return one in `home()`.
    """
    with contextlib.suppress(RuntimeError):  # no home
        caches = Path(below) if below and os.path.isabs(below) else Path.home() / ".cache"
        wanted = caches.absolute() / name
        if wanted.exists() or os.access(next(filter(Path.exists, wanted.parents)), os.W_OK | os.X_OK):
            return wanted
    return home() / ".cache" / name


def home() -> Path:
    """Return the user's home, or a directory below TMPDIR if the home does not exist or cannot be written to.

    A user id without an entry in the list of users, as in containers, may have no home.
    """
    with contextlib.suppress(RuntimeError):
        found = Path.home()
        if found.is_absolute() and os.access(found, os.W_OK | os.X_OK):
            return found
    own = Path(tempfile.gettempdir(), f"exactly-once-lab-{os.getuid()}").absolute()
    own.mkdir(mode=0o700, exist_ok=True)
    if own.is_symlink() or own.stat().st_uid != os.getuid():
        raise PermissionError(f"{own} belongs to another user; set HOME to a directory of yours")
    return own


def _without(unwanted: Callable[[str], bool]) -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if not unwanted(name)}


def _is_for_another_python(name: str) -> bool:
    return name.startswith("PYTHON") and name not in KEPT_OF_PYTHON


WATCH = """
while read -r pid; do last=$pid; done
left=$2
while [ "$left" -gt 0 ] && kill -0 "$last" 2>/dev/null; do sleep 1; left=$((left - 1)); done
[ -z "$last" ] || kill -s KILL -- "$3$last" 2>/dev/null
[ -z "$1" ] || for _ in 1 2 3 4 5; do sleep 1; rm -rf "$1" && break; done  # while others still write there
"""
# The child writes its id to the pipe before it becomes the command, so the reaper always knows it.
JOIN = 'echo $$ >&0; input=$1; shift; exec "$@" <"$input"'


class ChildReaper:
    """Kills the child that `start` started, with its process group, if the current process ends before `release()`.

    Then it deletes the directory `leftovers`, also if no child was started. With `group`, the child must lead a process
    group (`start_new_session`); otherwise it is killed alone. Before the kill, the child has `patience` seconds to end
    by itself. A reaper that is garbage-collected acts as if the current process had ended.
    """

    def __init__(self, leftovers: Path | None = None, patience: int = 0, group: bool = True):
        self._shell = subprocess.Popen(
            ["/bin/sh", "-c", WATCH, "reaper", str(leftovers or ""), str(patience), "-" if group else ""],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
            bufsize=0,
        )

    def start(self, command: list[str], stdin: int | None = None, **options: Any) -> subprocess.Popen:
        """Start a child; `options` are Popen's.

        Its standard input is the pipe with the file descriptor `stdin`, or /dev/null.
        """
        source = "/dev/null"
        if stdin is not None:
            source = f"/dev/fd/{stdin}"
            options["pass_fds"] = (*options.get("pass_fds", ()), stdin)
        command = ["/bin/sh", "-c", JOIN, "sh", source, *command]
        return subprocess.Popen(command, stdin=self._shell.stdin, **options)

    def release(self) -> None:
        """Forget the child. Call it once the child has ended, since another process may get its id. Idempotent."""
        self._shell.kill()
        self._shell.communicate()


@contextlib.contextmanager
def temporary_directory(prefix: str) -> Iterator[Path]:
    """Make a temporary directory, and delete it at the end of the block or of this process, however that ends."""
    directory = Path(tempfile.mkdtemp(prefix=prefix))
    reaper = ChildReaper(directory)
    try:
        yield directory
    finally:
        shutil.rmtree(directory, ignore_errors=True)
        reaper.release()


def ending_of(code: int) -> str:
    """Return in words how a process with this exit code ended; a negative code means a signal."""
    if code >= 0:
        return f"ended by itself with exit code {code}"
    with contextlib.suppress(ValueError):  # a real-time signal has no name
        return f"was ended by {signal.Signals(-code).name}"
    return f"was ended by signal {-code}"


ORDERLY = signal.SIGTERM  # asks a process to end by itself; some want another signal
ROUTINE = re.compile(r"\t|\S+ INFO ")  # lines of a Java log that seldom tell why a process ended


class ProcessNotKilled(RuntimeError):
    """A process lives on after SIGKILL."""


class ChildProcess:
    """`command` in a process group of its own, its output appended to `log_file`; `options` are Popen's.

    `group` is the id of the group, and that of the process while it exists.
    """

    def __init__(self, command: list[str], log_file: Path, leftovers: Path | None = None, **options: Any):
        self.log_file = log_file
        try:
            with interrupts_wait(), log_file.open("ab") as log:  # an interrupt in between would lose the child
                self._start(command, log, leftovers, options)
        except KeyboardInterrupt:
            self.kill()
            raise

    def _start(self, command: list[str], log: IO[bytes], leftovers: Path | None, options: dict[str, Any]) -> None:
        self._log_start, self._reaper = log.tell(), ChildReaper(leftovers)
        try:
            # A session of its own: Ctrl-C reaches only this process, which then ends its children.
            self._process = self._reaper.start(command, stdout=log, stderr=log, start_new_session=True, **options)
        except BaseException:
            self._reaper.release()
            raise
        self.group = self._process.pid

    @property
    def pid(self) -> int | None:
        """The process id while the process exists, paused or not, else None."""
        return self._process.pid if self.exit_code is None else None

    @property
    def running(self) -> bool:
        return self.pid is not None

    @property
    def exit_code(self) -> int | None:
        """The exit code, or the number of the signal that ended it with a minus; None while it exists."""
        code = self._process.poll()
        if code is not None and not self.has_group:
            self._reaper.release()
        return code

    @property
    def ending(self) -> str:
        """How it ended, in words."""
        return ending_of(self.exit_code or 0)

    @property
    def has_group(self) -> bool:
        """Whether the process or one that it started still runs: a child may outlive it for a while.

        A zombie does not count: an init may take a second to reap it, and the first process of a container never does.
        """
        try:
            os.killpg(self.group, 0)
        except ProcessLookupError:
            return False
        except PermissionError:  # macOS says that of a process that is just ending
            pass
        # Twice, since the first list lacks a process that is just being forked.
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
        _ = self.exit_code  # releases the reaper
        return code

    def finish(self, timeout: float | None = None) -> int:
        """Wait for the end as `wait` does; kill the process if the wait raises, for example KeyboardInterrupt."""
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
        """SIGKILL the process and what it started, and wait until all of it is gone. Raises ProcessNotKilled."""
        with interrupts_wait():
            self.signal(signal.SIGKILL)
            try:
                self._process.wait(TO_DIE)
            except subprocess.TimeoutExpired:
                raise ProcessNotKilled(
                    f"process {self._process.pid} is still there {TO_DIE:g} s after SIGKILL: is it another user's?"
                ) from None
            eventually(lambda: not self.has_group, interval=0.01)
            self._reaper.release()

    def stop(self, patience: float = 30.0, number: int = ORDERLY) -> None:
        """Signal the process and what it started, wait `patience` seconds at most, and kill what is left."""
        self.signal(number)
        self.resume()  # a paused process does not react
        try:
            self._process.wait(patience)
        except subprocess.TimeoutExpired:
            pass
        finally:
            self.kill()

    def pause(self) -> None:
        """SIGSTOP: freeze the process. When this returns, all of its threads have stopped."""
        self.signal(signal.SIGSTOP)
        if self.pid is not None:  # its threads continue until one of them has handled the signal
            eventually(lambda: self.paused or self.pid is None)

    def resume(self) -> None:
        """SIGCONT: the process continues."""
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
        """Return the end of what the process printed, without routine lines of a log, for an error message."""
        return f"Last lines of {self.log_file}:\n{last_lines(self.output(), count)}"


def _runs_in(group: int, pid: int) -> bool:
    """Tell whether a process of this id belongs to the group, and has not ended."""
    with contextlib.suppress(ProcessLookupError, PermissionError, psutil.Error):
        return os.getpgid(pid) == group and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    return False


def resident_bytes(pid: int) -> int:
    """Return how many bytes of memory a process and its descendants have now; shared pages count in each."""
    return sum(_of_each(pid, lambda process: process.memory_info().rss))


def processor_seconds(pid: int) -> float:
    """Return the processor time that a process and its descendants have taken; those that have ended do not count."""
    return sum(times.user + times.system for times in _of_each(pid, lambda process: process.cpu_times()))


def _of_each(pid: int, measure: Callable[[psutil.Process], Any]) -> Iterator[Any]:
    """Yield what is measured of a process and of each of its descendants; those that have ended are left out."""
    with contextlib.suppress(psutil.Error):
        process = psutil.Process(pid)
        for each in (process, *process.children(recursive=True)):
            with contextlib.suppress(psutil.Error):
                yield measure(each)


def last_lines(text: str, count: int = 15) -> str:
    """Return the last lines, indented, without routine lines of a Java log unless there are no others."""
    lines = text.splitlines()
    telling = [line for line in lines if not ROUTINE.match(line)]
    return "\n".join(f"  {line}" for line in (telling or lines)[-count:])
