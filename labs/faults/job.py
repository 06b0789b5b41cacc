"""The pipeline as a process of its own, so that a test can really kill it.

A job reports events as lines of JSON on its standard output: {"event": "begins", "batch": 3}, and "done". A hot spare
reports {"event": "warm"} first.
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
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import IO, Any

import psutil

from labs.equipment.child_process import ChildProcess, for_python
from labs.equipment.spark_cluster import is_executor
from labs.faults.fault_points import JOB_POINTS, Fault, TaskFaults

# The values of its option `sink`: the exactly-once sink with its default or with one kind of writer; and weaker sinks.
SINKS = ("exactly-once", "by-driver", "by-executors", "no-marker", "at-least-once", "not-idempotent")

# The same, as a command's help says it.
SINK_HELP = f"{', '.join(SINKS)}; or a file with a function publish(rows, batch_id, kafka) (default: %(default)s)"


def known_sink(text: str) -> str:
    """Return a job's option `sink`: one of SINKS, or a Python file with a function publish, as an absolute path.

    Raises ValueError.
    """
    if text in SINKS:
        return text
    if not text.endswith(".py"):
        raise ValueError(f"no sink is called {text!r}; there are {', '.join(SINKS)}, or name a Python file")
    file = Path(text).expanduser()
    if not file.is_file():
        raise ValueError(f"there is no file {text!r} with a sink")
    return str(file.resolve())


class JobFailed(RuntimeError):
    """A job process ended with a non-zero exit code or by a signal."""


class NotASpare(RuntimeError):
    """The job cannot take over: it was not started as a spare, or has taken over already."""


class JobProcess(ChildProcess):
    """`python -m labs run` with the given options, leading a process group of its own.

    `options` are those of `python -m labs run --help` with `_` for `-`; None leaves one out. `environment` adds
    variables, such as SPARK_MASTER. Signals go to the whole group: Python, Spark's JVM and its workers, but not to
    the executors of a cluster, which notice that their driver has ended.

    With `warm` it is a hot spare: it starts Python, JVM and session, and waits for its options from `take_over`. Until
    then it knows no address of Kafka, no checkpoint and no name, so it cannot read anything or fence another job.

    While it runs, `points.armed("before_commit", "freeze")` strikes it when a batch reaches that point of its protocol.
    """

    def __init__(
        self,
        faults: tuple[Fault, ...] = (),
        environment: Mapping[str, str] | None = None,
        warm: bool = False,
        **options: object,
    ):
        if warm and (faults or options):
            raise ValueError("a warm job gets its faults and options from take_over: do not give them here")
        command = [sys.executable, "-m", "labs", "run"]
        command += ["--warm"] if warm else arguments(faults, options)
        self._orders: IO[bytes] | None = None
        self._directory = Path(tempfile.mkdtemp(prefix="labs-job-"))
        temporary = self._directory / "tmp"
        temporary.mkdir()  # its own, because a killed Spark cannot delete its temporary files
        armed = self._directory / "points"
        armed.mkdir()
        self.points = TaskFaults(str(armed))
        with contextlib.ExitStack() as opened:
            end = self._order_pipe(opened) if warm else None
            super().__init__(
                command,
                self._directory / "output.log",
                leftovers=self._directory,
                stdin=end,
                env={**for_python(TMPDIR=str(temporary), **{JOB_POINTS: str(armed)}), **(environment or {})},
            )

    def _order_pipe(self, opened: contextlib.ExitStack) -> int:
        """Make a pipe for the orders; keep its writing end, and return its reading end, which `opened` closes here."""
        end, ours = os.pipe()
        opened.callback(os.close, end)
        self._orders = os.fdopen(ours, "wb")
        return end

    @property
    def is_warm(self) -> bool:
        """Whether it is a spare that is ready and waits for `take_over`."""
        return self._orders is not None and self.running and {"event": "warm"} in self.events()

    def take_over(self, faults: tuple[Fault, ...] = (), **options: object) -> None:
        """Tell a spare to run as the job with these faults and options; if it is not ready yet, it does so later.

        Raises NotASpare, JobFailed if it is dead, ValueError for an option that a spare needs at its start.
        """
        if "environment" in options:
            raise ValueError("a spare gets its environment, with SPARK_MASTER, when it is started: do not give it here")
        if self._orders is None:
            raise NotASpare(f"job {self.group} cannot take over: it was not started warm, or has taken over already")
        orders, self._orders = self._orders, None
        try:
            with orders:
                orders.write(json.dumps(arguments(faults, options)).encode() + b"\n")
        except BrokenPipeError:
            raise JobFailed(f"the spare died before it could take over; {self.last_line()}") from None

    def wait(self, timeout: float | None = None) -> int:
        """Wait for the job's end. Raises JobFailed unless it succeeded, TimeoutError after `timeout` seconds."""
        try:
            code = super().wait(timeout)
        except subprocess.TimeoutExpired:
            raise TimeoutError(f"the job did not end within {timeout:g} s; last line: {self.last_line()}") from None
        except KeyboardInterrupt:
            self.kill()
            raise
        if code:
            how = f"killed by {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"
            raise JobFailed(f"{how}; {self.last_line()}")
        return code

    def executors(self) -> list[psutil.Process]:
        """Return the executors that the job itself started: those of a local-cluster, no others."""
        with contextlib.suppress(psutil.NoSuchProcess):
            return [each for each in psutil.Process(self.group).children(recursive=True) if is_executor(each)]
        return []

    def events(self) -> list[dict[str, Any]]:
        """Return the events that the job has reported, in order: {"event": "begins" or "done", "batch": its number}."""
        return events_in(self.output())

    def has_begun(self, batch: int) -> bool:
        """Tell whether the job has begun a batch: Spark has planned it and called the sink."""
        return {"event": "begins", "batch": batch} in self.events()

    def batches_done(self) -> int:
        """Return how many batches the sink has finished in this job."""
        return sum(event["event"] == "done" for event in self.events())

    def __enter__(self) -> JobProcess:
        return self

    def close(self) -> None:
        """Kill the job if it still runs, and delete what it printed and its temporary files."""
        self.kill()
        if self._orders:
            self._orders.close()
        shutil.rmtree(self._directory, ignore_errors=True)

    def __exit__(self, *_: object) -> None:
        self.close()


def arguments(faults: Iterable[Fault], options: Mapping[str, object]) -> list[str]:
    """Return the arguments of `python -m labs run` for these faults and options."""
    given = [(f"--{name.replace('_', '-')}", str(value)) for name, value in options.items() if value is not None]
    given += [("--fault", str(fault)) for fault in faults]
    return [part for pair in given for part in pair]


def events_in(output: str) -> list[dict[str, Any]]:
    """Return a job's events from its output, in which Spark, Kafka and Python also print."""
    events = []
    for line in output.splitlines():
        with contextlib.suppress(ValueError):
            if line.startswith('{"event"'):
                events.append(json.loads(line))
    return events
