"""The pipeline as a process of its own, so that a kill is a real kill.

A job tells what it does in lines of JSON on its standard output: {"event": "begins", "batch": 3}, and "done"; one that
is a hot spare first {"event": "warm"}.
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

from labs.equipment.child_environment import for_python
from labs.equipment.child_process import ChildProcess
from labs.equipment.spark_daemon import is_executor
from labs.faults.fault import Fault

# What its option `sink` can be: the exactly-once sink as the library makes it, or with one writer; and lesser ones.
SINKS = ("exactly-once", "by-driver", "by-executors", "no-marker", "at-least-once", "not-idempotent")


class JobFailed(RuntimeError):
    """A job process ended with a non-zero exit code or by a signal."""


class NotASpare(RuntimeError):
    """The job cannot take over: it was not started warm, or was told already."""


class JobProcess:
    """`python -m labs run` with the given options, leading a process group of its own.

    `options` are those of `python -m labs run --help` with `_` for `-`; None leaves one out. `environment` adds
    variables, such as SPARK_MASTER. Signals go to the whole group: Python, Spark's JVM and its workers, but not to
    the executors of a cluster, which notice that their driver is gone.

    With `warm` it is a hot spare: it starts Python, JVM and session and waits to be told its options by `take_over`.
    Until then it knows no address of Kafka, no checkpoint and no name, so it can read nothing and fence nobody.
    """

    def __init__(
        self,
        faults: tuple[Fault, ...] = (),
        environment: Mapping[str, str] | None = None,
        warm: bool = False,
        **options: object,
    ):
        if warm and (faults or options):
            raise ValueError("a warm job is told its faults and options when it is to take over")
        command = [sys.executable, "-m", "labs", "run"]
        command += ["--warm"] if warm else arguments(faults, options)
        self._orders: IO[bytes] | None = None
        self._directory = Path(tempfile.mkdtemp(prefix="labs-job-"))
        temporary = self._directory / "tmp"
        temporary.mkdir()  # its own, because a Spark that is killed cannot tidy up what it left there
        with contextlib.ExitStack() as opened:
            end = self._order_pipe(opened) if warm else None
            self._process = ChildProcess(
                command,
                self._directory / "output.log",
                leftovers=self._directory,
                stdin=end,
                env={**for_python(TMPDIR=str(temporary)), **(environment or {})},
            )

    def _order_pipe(self, opened: contextlib.ExitStack) -> int:
        """Keep one end of a new pipe, and return the other, which is closed here with `opened`."""
        end, ours = os.pipe()
        opened.callback(os.close, end)
        self._orders = os.fdopen(ours, "wb")
        return end

    @property
    def is_warm(self) -> bool:
        """Whether it is a spare that is ready and waits to be told."""
        return self._orders is not None and self.running and {"event": "warm"} in self.events()

    def take_over(self, faults: tuple[Fault, ...] = (), **options: object) -> None:
        """Tell a spare to go on as the job with these faults and options; one that is not ready yet is so soon.

        Raises NotASpare, JobFailed if it is dead, ValueError for what cannot be told any more.
        """
        if "environment" in options:
            raise ValueError("the environment, and SPARK_MASTER in it, is given to a spare when it is started")
        if self._orders is None:
            raise NotASpare(f"job {self.pid} cannot take over: it was not started warm, or has been told already")
        orders, self._orders = self._orders, None
        try:
            with orders:
                orders.write(json.dumps(arguments(faults, options)).encode() + b"\n")
        except BrokenPipeError:
            raise JobFailed(f"the spare died before it could take over; {self.last_line()}") from None

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

    def stop(self) -> None:
        """SIGTERM the whole group, let it end in its own time, and kill what has not within half a minute."""
        self._process.stop()

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
        return self._process.last_line()

    def __enter__(self) -> JobProcess:
        return self

    def close(self) -> None:
        """Kill the job if it still runs, and delete what it printed and its temporary files."""
        self._process.kill()
        if self._orders:
            self._orders.close()
        shutil.rmtree(self._directory, ignore_errors=True)

    def __exit__(self, *_: object) -> None:
        self.close()


def arguments(faults: Iterable[Fault], options: Mapping[str, object]) -> list[str]:
    """Return the arguments of `python -m labs run` that stand for these faults and options."""
    given = [(f"--{name.replace('_', '-')}", str(value)) for name, value in options.items() if value is not None]
    given += [("--fault", str(fault)) for fault in faults]
    return [part for pair in given for part in pair]


def events_in(output: str) -> list[dict[str, Any]]:
    """Return what a job has told, from all that was printed: Spark, Kafka and Python print on the same paper."""
    events = []
    for line in output.splitlines():
        with contextlib.suppress(ValueError):
            if line.startswith('{"event"'):
                events.append(json.loads(line))
    return events
