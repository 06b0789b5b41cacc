"""Carry out a schedule in which nothing but crashes and expiries happen: consumers, and two-phase commit by hand."""

from __future__ import annotations

import dataclasses
import shutil
import tempfile
import uuid
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from labs.equipment.topics import create_topic, remove_topics
from labs.evidence.readers.decided import wait_until_decided
from labs.evidence.readers.results import read_visible
from labs.schedules.replay.bench import LATE, NEVER_LATE, PATIENCE, CannotPlay, ReplayBench
from labs.schedules.replay.checkpoint import SmallCheckpoint
from labs.schedules.replay.driver import Step
from labs.schedules.replay.played_driver import PlayedDriver
from labs.schedules.schedule import STARTS, Event, Schedule

OPEN_FOR_EVER = 5.0  # seconds after which a transaction that nobody is left to end is taken for that


class CrashPlayer:
    """Plays one schedule of a stage; its programs are processes. A context manager."""

    program = ""  # the module of the programs
    first = ""  # who runs from the start
    partitions = 1

    def __init__(self, stage: Any, bench: ReplayBench, expires: bool = False):
        self.stage, self.direct = stage, bench.direct
        self.name = f"replay-{uuid.uuid4().hex[:12]}"
        self.topic = f"{self.name}-results"
        self.timeout = LATE if expires else NEVER_LATE
        self.patience = OPEN_FOR_EVER
        self._drivers: dict[str, PlayedDriver] = {}
        self._seen: tuple[int, ...] = ()
        self._stack = ExitStack()

    def __enter__(self) -> CrashPlayer:
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

    def play(self, schedule: Schedule) -> Schedule:
        """Carry out all steps, and return them with what came back and was seen. Raises CannotPlay."""
        return schedule._replace(events=tuple(self._step(n, e) for n, e in enumerate(schedule.events, 1)), anomaly=None)

    def end(self) -> None:
        """Kill everybody; what is open stays so."""
        for driver in self._drivers.values():
            driver.kill()

    @property
    def records(self) -> range:
        """All records of the source."""
        return range(self.stage.rows * self.stage.batches)

    # What the two kinds differ in

    def start_first(self) -> None:
        """Start who runs from the start."""
        self._start(self.first)

    def place(self) -> dict[str, int]:
        """Return where a program that starts now goes on."""
        raise NotImplementedError

    def due(self) -> range:
        """Return the records that somebody has noted as done."""
        raise NotImplementedError

    # How a step is taken

    def _step(self, number: int, event: Event) -> Event:
        try:
            answer = self._carry_out(event)
        except (RuntimeError, TimeoutError, OSError) as error:
            raise CannotPlay(f"step {number} ({event._replace(answer='')}) cannot be carried out: {error}") from error
        before, self._seen = self._seen, self._visible()
        return event._replace(answer=answer, sees=None if before == self._seen else self._seen)

    def _carry_out(self, event: Event) -> str:
        if event.action in STARTS:
            for driver in self._drivers.values():
                if driver.alive and not driver.asleep:
                    driver.sleep()
            where = self.place()
            if event.batch not in (None, where.get("batch")) or event.row not in (None, where.get("record")):
                raise RuntimeError(f"it would go on at {where}")
            self._start(event.whose)
            return ""
        if event.action == "time out":
            self._wait_until_decided()
            return ""
        if event.actor not in self._drivers or not self._drivers[event.actor].alive:
            raise RuntimeError(f"{event.actor} does not run")
        driver = self._drivers[event.actor]
        if event.action in ("crash", "wake"):
            driver.kill() if event.action == "crash" else driver.wake()
            return ""
        self._begin(driver, event)
        answer = driver.answer()
        if event.action == "commit" and answer == "ok":
            self._wait_until_decided()
        return answer

    def _begin(self, driver: PlayedDriver, event: Event) -> None:
        step = driver.begin()
        if step != Step(event.action, event.batch, event.row):
            raise RuntimeError(f"its next step is another: {step.action}")

    def _wait_until_decided(self) -> None:
        if not all(wait_until_decided(self.direct, self.topic, PATIENCE).values()):
            raise RuntimeError("the transaction stays open")

    def _start(self, name: str) -> None:
        settings = {
            **dataclasses.asdict(self.stage),
            **self.place(),
            "name": self.name,
            "client_id": self._client(name),
            "bootstrap_servers": self.direct,
            "topic": self.topic,
            "checkpoint": str(self.checkpoint.directory),
            "transaction_timeout_ms": self.timeout,
        }
        self._drivers[name] = PlayedDriver(name, settings | self.more_settings(name), self.program)

    def _client(self, name: str) -> str:
        return f"{name} of {self.name}"

    def more_settings(self, name: str) -> dict[str, Any]:
        return {}

    def _visible(self) -> tuple[int, ...]:
        return tuple(int(result.ip.split()[1]) for result in read_visible(self.direct, self.topic))
