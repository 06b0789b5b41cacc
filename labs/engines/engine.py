"""What an engine is to the lab: its settings as data, each with its reason, and a process that can be killed.

Guarantee: what `python -m labs engines show` prints is what a run is given; there is no other place for a setting.
Where it stops: how an engine works inside is its own affair. Whether it keeps what it promises is the auditor's.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, Protocol

TRANSACTION_TIMEOUT_MS = 60_000  # of every engine: longer than its restart, far below the broker's 15 minutes
NAME = "{name}"  # in a setting's value: the name of the run
ONE_TRANSACTION = "results, changelog and offsets of the group in one transaction"
STATIC_MEMBER = (
    "a restarted member takes its partitions back at once; without it the group waits for the dead one until "
    "session.timeout.ms is over, 45 s"
)
COMMIT_SECONDS = 1  # of every engine, unless told otherwise: between two checkpoints, commits or micro-batches


class Setting(NamedTuple):
    """One setting of an engine, by the name that its documentation has, and why it has this value."""

    name: str
    value: str
    why: str


@dataclass(frozen=True)
class Work:
    """What a run is to count, and where it may keep what it must remember.

    `name` is unique to the run: consumer group, transactional ids and changelog topics are named by it. With
    `long_run` a JVM uses all of its compilers, otherwise the quick one alone, with which it starts soonest.
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


class Running(Protocol):
    """An engine at work: a process group that this program started."""

    @property
    def pid(self) -> int:
        """The process id, which is the process group's too."""

    @property
    def running(self) -> bool: ...

    def kill(self) -> None:
        """SIGKILL the whole group and wait until it is gone."""

    def stop(self) -> None:
        """SIGTERM the whole group, let it end in its own time, and kill what has not within half a minute."""

    def close(self) -> None:
        """Kill it if it still runs, and delete its temporary files."""

    def last_line(self) -> str:
        """Return the last line that it printed."""


class Engine(Protocol):
    """One way to count: `start` begins the work, or goes on with it from what `work.directory` and Kafka remember."""

    name: str
    title: str
    promise: str  # what its documentation says of exactly once, in one sentence
    installed_apart: bool  # whether it needs an environment of its own
    notes: str  # the files below `Work.directory` that say what is done, as a glob; empty if Kafka alone knows

    def settings(
        self,
        exactly_once: bool,
        transaction_timeout_ms: int = TRANSACTION_TIMEOUT_MS,
        commit_seconds: int = COMMIT_SECONDS,
    ) -> tuple[Setting, ...]:
        """Return what is not left at its default."""

    def start(self, work: Work) -> Running:
        """Start, or start again. Raises NotInstalled."""


def as_options(settings: tuple[Setting, ...], prefix: str = "") -> dict[str, str]:
    """Return the settings whose names begin with `prefix`, without it: name -> value."""
    return {each.name.removeprefix(prefix): each.value for each in settings if each.name.startswith(prefix)}
