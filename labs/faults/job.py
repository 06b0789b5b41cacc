"""The pipeline as a process of its own, so that a kill is a real kill.

A job tells what it does in lines of JSON on its standard output: {"event": "begins", "batch": 3}, and "done".
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import psutil

from labs.equipment.child_process import ChildProcess
from labs.equipment.spark_daemon import is_executor
from labs.faults.fault import Fault

ROOT = Path(__file__).resolve().parents[2]
SINKS = ("exactly-once", "no-marker", "at-least-once", "not-idempotent")  # what its option `sink` can be


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
        temporary = self._directory / "tmp"
        temporary.mkdir()  # its own, because a Spark that is killed cannot tidy up what it left there
        self._process = ChildProcess(
            command,
            self._directory / "output.log",
            leftovers=self._directory,
            env={
                **os.environ,
                "PYTHONPATH": str(ROOT),
                "PYTHONUNBUFFERED": "1",
                "TMPDIR": str(temporary),
                **(environment or {}),
            },
        )

    @property
    def pid(self) -> int:
        """The job's process id, which is its process group's too."""
        return self._process.group

    @property
    def running(self) -> bool:
        return self._process.pid is not None

    @property
    def exit_code(self) -> int | None:
        """The exit code, or the number of the signal that ended it with a minus; None while it runs."""
        return self._process.exit_code

    @property
    def paused(self) -> bool:
        """Whether the job is stopped by SIGSTOP, by us or by a fault of its own."""
        return self._process.paused

    def wait(self, timeout: float | None = None) -> None:
        """Wait for the job's end. Raises JobFailed unless it succeeded, TimeoutError after `timeout` seconds."""
        try:
            code = self._process.wait(timeout)
        except subprocess.TimeoutExpired:
            raise TimeoutError(f"the job did not end within {timeout:g} s; at last: {self.last_line()}") from None
        except KeyboardInterrupt:
            self.kill()
            raise
        if code:
            how = f"killed by {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"
            raise JobFailed(f"{how}; {self.last_line()}")

    def kill(self) -> None:
        """SIGKILL the whole group and wait until the job is gone."""
        self._process.kill()

    def pause(self) -> None:
        """SIGSTOP: the job is frozen and does not know it."""
        self._process.pause()

    def resume(self) -> None:
        """SIGCONT: the job goes on where it was."""
        self._process.resume()

    @property
    def log_file(self) -> Path:
        """What the job prints goes there, until `close`."""
        return self._process.log_file

    def executors(self) -> list[psutil.Process]:
        """Return the executors that the job itself started: those of a local-cluster, none of any other."""
        with contextlib.suppress(psutil.NoSuchProcess):
            return [each for each in psutil.Process(self.pid).children(recursive=True) if is_executor(each)]
        return []

    def events(self) -> list[dict[str, Any]]:
        """Return what the job has told so far, in order: {"event": "begins" or "done", "batch": its number}."""
        return events_in(self.output())

    def has_begun(self, batch: int) -> bool:
        """Tell whether the job has begun a batch: it is planned, and handed to the sink."""
        return {"event": "begins", "batch": batch} in self.events()

    def batches_done(self) -> int:
        """Return how many batches the sink has finished in this job."""
        return sum(event["event"] == "done" for event in self.events())

    def output(self) -> str:
        """Return what the job has printed so far."""
        return self._process.output()

    def last_line(self) -> str:
        lines = self.output().strip().splitlines()
        return lines[-1] if lines else "it printed nothing"

    def __enter__(self) -> JobProcess:
        return self

    def close(self) -> None:
        """Kill the job if it still runs, and delete what it printed and its temporary files."""
        self._process.kill()
        shutil.rmtree(self._directory, ignore_errors=True)

    def __exit__(self, *_: object) -> None:
        self.close()


def events_in(output: str) -> list[dict[str, Any]]:
    """Return what a job has told, from all that was printed: Spark, Kafka and Python print on the same paper."""
    events = []
    for line in output.splitlines():
        with contextlib.suppress(ValueError):
            if line.startswith('{"event"'):
                events.append(json.loads(line))
    return events
