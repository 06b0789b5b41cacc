"""What the lab needs of an engine: its settings as data, each with its reason, and a process that can be killed.

Guarantee: `Engine.settings` is the only place for an engine's settings. A run uses what it returns, and `python -m labs
engines show` prints it, with the default timeout and commit interval. A run adds only addresses, names, directories,
jars and the number of tasks (`Work.tasks`).
Limitations: the lab does not look into an engine; the auditor finds out whether it keeps its promise.

Each engine runs as a process group of its own, so that it can be killed as a whole.
"""

from __future__ import annotations

import json
import os
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, Protocol

from labs.equipment.child_process import ChildProcess, for_program

TEMPORARY = "tmp"


def python_command(python: Path, program: Path, order: dict[str, object]) -> list[str]:
    """Return `python -I program ORDER`: isolated, so that the program cannot import the lab's packages."""
    return [str(python), "-I", "-u", str(program), json.dumps(order)]


class EngineProcess(ChildProcess):
    """A running engine. Its temporary files are in TEMPORARY below `directory`, until `close` or this process's end."""

    def __init__(self, command: list[str], directory: Path, **variables: str):
        self._temporary = directory / TEMPORARY
        self._temporary.mkdir(parents=True, exist_ok=True)
        environment = for_program(TMPDIR=str(self._temporary), **variables)
        super().__init__(command, directory / "engine.log", self._temporary, cwd=directory, env=environment, stdin=None)

    def close(self) -> None:
        """Kill it if it still runs, and delete its temporary files: a Flink unpacks 67 MB at each start."""
        self.kill()
        shutil.rmtree(self._temporary, ignore_errors=True)


TRANSACTION_TIMEOUT_MS = 60_000  # of every engine: longer than a restart, shorter than the broker's 15 minutes
NAME = "{name}"  # in a setting's value: the name of the run
ONE_TRANSACTION = "results, changelog and offsets of the group in one transaction"
STATIC_MEMBER = (
    "a restarted member takes its partitions back at once; without it the group waits for the dead one until "
    "session.timeout.ms is over, 45 s"
)
READ_COMMITTED = "the default also counts records that the source's producer aborts"
COMMIT_SECONDS = 1  # default of every engine, between two checkpoints, commits or micro-batches


class Setting(NamedTuple):
    """One setting of an engine, by the name that its documentation uses, and the reason for its value."""

    name: str
    value: str
    why: str


@dataclass(frozen=True)
class Work:
    """What a run counts, and the directory for its state.

    `name` is unique to the run: consumer group, transactional ids and changelog topics are named after it. With
    `long_run` a JVM uses all of its compilers, otherwise only the quick one, with which it starts soonest. `partitions`
    are those of the source.
    """

    bootstrap_servers: str
    source_topic: str
    sink_topic: str
    directory: Path
    name: str
    exactly_once: bool = True
    transaction_timeout_ms: int = TRANSACTION_TIMEOUT_MS
    long_run: bool = False
    commit_seconds: int = COMMIT_SECONDS
    partitions: int = 1

    @property
    def tasks(self) -> int:
        """How many tasks an engine runs in parallel: one for each source partition, but at most one for each core."""
        return min(self.partitions, os.cpu_count() or 1)


class Running(Protocol):
    """A running engine: a process group that this program started."""

    group: int  # the id of the process group

    @property
    def running(self) -> bool: ...

    @property
    def ending(self) -> str:
        """How it ended, in words."""

    def kill(self) -> None:
        """Send SIGKILL to the whole group, and wait until it has ended."""

    def stop(self) -> None:
        """Send SIGTERM to the whole group, wait up to half a minute for its end, and kill what still runs."""

    def close(self) -> None:
        """Kill it if it still runs, and delete its temporary files."""

    def last_line(self) -> str:
        """Return the last line that it printed."""


class Engine(Protocol):
    """A stream processor that counts: `start` begins the work, or resumes it from `work.directory` and from Kafka."""

    name: str
    title: str
    promise: str  # what its documentation says about exactly once, in one sentence
    installed_apart: bool  # whether it needs an environment of its own
    notes: str  # a glob of the files below `Work.directory` that record what is done; empty if only Kafka records it

    def settings(
        self,
        exactly_once: bool,
        transaction_timeout_ms: int = TRANSACTION_TIMEOUT_MS,
        commit_seconds: int = COMMIT_SECONDS,
    ) -> tuple[Setting, ...]:
        """Return the settings that differ from the engine's defaults."""

    def start(self, work: Work) -> Running:
        """Start, or start again. Raises NotInstalled."""


def as_options(settings: tuple[Setting, ...], prefix: str = "") -> dict[str, str]:
    """Return the settings whose names begin with `prefix`, as name without prefix -> value."""
    return {each.name.removeprefix(prefix): each.value for each in settings if each.name.startswith(prefix)}
