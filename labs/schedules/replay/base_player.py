"""What all players have: a name, a topic, a checkpoint, the drivers of one schedule, and a reader that looks on."""

from __future__ import annotations

import dataclasses
import shutil
import tempfile
import uuid
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Generic, Self, TypeVar

from labs.equipment.topics import create_topic, remove_topics
from labs.evidence.readers.results import read_visible
from labs.schedules.replay.bench import LATE, NEVER_LATE, ReplayBench
from labs.schedules.replay.checkpoint import SmallCheckpoint
from labs.schedules.replay.driver import Driver

Kind = TypeVar("Kind", bound=Driver)


class BasePlayer(Generic[Kind]):
    """Plays one schedule of a stage on a bench. A context manager: it removes its topics and ends its drivers.

    `patience` is for what is open in the end, in seconds; `expires`: Kafka aborts open transactions soon.
    """

    partitions = 1

    def __init__(self, stage: Any, bench: ReplayBench, expires: bool, patience: float):
        self.stage, self._bench, self.patience = stage, bench, patience
        self.name = f"replay-{uuid.uuid4().hex[:12]}"
        self.topic = f"{self.name}-results"
        self.timeout = LATE if expires else NEVER_LATE
        self._drivers: dict[str, Kind] = {}
        self._seen: tuple[int, ...] = ()
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        directory = Path(tempfile.mkdtemp(prefix="labs-replay-"))
        self._stack.callback(shutil.rmtree, directory, ignore_errors=True)
        self.checkpoint = SmallCheckpoint(directory)
        create_topic(self.direct, self.topic, self.partitions)
        self._stack.callback(remove_topics, self.direct, self.topic)
        self.start_first()
        return self

    def __exit__(self, *_: object) -> None:
        for driver in self._drivers.values():
            driver.close()
        self._stack.close()

    def start_first(self) -> None:
        """Make what else there has to be, and start who runs from the start."""
        raise NotImplementedError

    def end(self) -> None:
        """Kill everybody; what is open stays so."""
        for driver in self._drivers.values():
            driver.kill()

    @property
    def direct(self) -> str:
        """Kafka's address past the proxy."""
        return self._bench.direct

    @property
    def records(self) -> range:
        """All records of the source."""
        return range(self.stage.batches * self.stage.rows)

    def visible(self) -> tuple[int, ...]:
        """Return the records that a read_committed reader sees now."""
        return tuple(int(result.ip.split()[1]) for result in read_visible(self.direct, self.topic))

    def _look(self) -> tuple[int, ...] | None:
        """Return what a reader sees now, if that has changed since the last look."""
        before, self._seen = self._seen, self.visible()
        return None if self._seen == before else self._seen

    def _settings(self, name: str, bootstrap_servers: str) -> dict[str, Any]:
        """Return what every program is told."""
        return {
            **dataclasses.asdict(self.stage),
            "name": self.name,
            "client_id": self._client(name),
            "bootstrap_servers": bootstrap_servers,
            "topic": self.topic,
            "checkpoint": str(self.checkpoint.directory),
            "transaction_timeout_ms": self.timeout,
        }

    def _client(self, name: str) -> str:
        return f"{name} of {self.name}"
