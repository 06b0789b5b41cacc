"""The pipeline as a process of its own, so that a kill is a real kill."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

import psutil

from labs.equipment.leash import Leash
from labs.equipment.spark_daemon import is_executor
from labs.faults.fault import Fault

ROOT = Path(__file__).resolve().parents[2]
SINKS = ("exactly-once", "at-least-once")  # what its option `sink` can be


class JobFailed(RuntimeError):
    """A job process ended with a non-zero exit code or by a signal."""


class JobProcess:
    """`python -m labs run` with the given options, leading a process group of its own.

    `options` are those of `python -m labs run --help` with `_` for `-`; None leaves one out. `environment` adds
    variables, such as SPARK_MASTER. Signals go to the whole group: Python, Spark's JVM and its workers, but not to
    the executors of a cluster, which notice that their driver is gone.
    """

    def __init__(self, faults: tuple[Fault, ...] = (), environment: Mapping[str, str] | None = None, **options: object):
        command = [sys.executable, "-m", "labs", "run"]
        for name, value in options.items():
            if value is not None:
                command += [f"--{name.replace('_', '-')}", str(value)]
        for fault in faults:
            command += ["--fault", str(fault)]
        self._directory = Path(tempfile.mkdtemp(prefix="labs-job-"))
        self._log_file, temporary = self._directory / "output.log", self._directory / "tmp"
        temporary.mkdir()  # its own, because a Spark that is killed cannot tidy up what it left there
        with self._log_file.open("wb") as log:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                env={
                    **os.environ,
                    "PYTHONPATH": str(ROOT),
                    "PYTHONUNBUFFERED": "1",
                    "TMPDIR": str(temporary),
                    **(environment or {}),
                },
            )
        self._leash = Leash(self._process.pid)

    @property
    def pid(self) -> int:
        """The job's process id, which is its process group's too."""
        return self._process.pid

    @property
    def running(self) -> bool:
        if self._process.poll() is None:
            return True
        self._leash.release()
        return False

    @property
    def exit_code(self) -> int | None:
        """The exit code, or the number of the signal that ended it with a minus; None while it runs."""
        return self._process.poll()

    @property
    def paused(self) -> bool:
        """Whether the job is stopped by SIGSTOP, by us or by a fault of its own."""
        state = subprocess.run(["ps", "-o", "state=", "-p", str(self.pid)], capture_output=True, text=True).stdout
        return state.strip().startswith("T")

    def wait(self, timeout: float | None = None) -> None:
        """Wait for the job's end, `timeout` seconds at most (TimeoutExpired). Raises JobFailed unless it succeeded."""
        try:
            code = self._process.wait(timeout)
        except KeyboardInterrupt:
            self.kill()
            raise
        self._leash.release()
        if code:
            how = f"killed by {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"
            raise JobFailed(f"{how}; {self.last_line()}")

    def kill(self) -> None:
        """SIGKILL the whole group and wait until the job is gone."""
        self._signal(signal.SIGKILL)
        self._process.wait()
        self._leash.release()

    def pause(self) -> None:
        """SIGSTOP: the job is frozen and does not know it."""
        self._signal(signal.SIGSTOP)

    def resume(self) -> None:
        """SIGCONT: the job goes on where it was."""
        self._signal(signal.SIGCONT)

    def executor_pids(self) -> list[int]:
        """Return the ids of the executors that the job itself started: those of a local-cluster, none of any other."""
        return [each.pid for each in psutil.Process(self.pid).children(recursive=True) if is_executor(each)]

    def output(self) -> str:
        """Return what the job has printed so far."""
        return self._log_file.read_text(errors="replace")

    def last_line(self) -> str:
        lines = self.output().strip().splitlines()
        return lines[-1] if lines else "it printed nothing"

    def _signal(self, number: int) -> None:
        if self.running:
            os.killpg(self.pid, number)

    def __enter__(self) -> JobProcess:
        return self

    def close(self) -> None:
        """Kill the job if it still runs, and delete what it printed and its temporary files."""
        if self.running:
            self.kill()
        shutil.rmtree(self._directory, ignore_errors=True)

    def __exit__(self, *_) -> None:
        self.close()
