"""Carry out a schedule in which nothing but crashes and expiries happen: consumers, and two-phase commit by hand."""

from __future__ import annotations

from typing import Any

from labs.evidence.readers.decided import wait_until_decided
from labs.schedules.replay.base_player import BasePlayer
from labs.schedules.replay.bench import PATIENCE, CannotPlay, ReplayBench
from labs.schedules.replay.driver import Step
from labs.schedules.replay.played_driver import PlayedDriver
from labs.schedules.schedule import STARTS, Event, Schedule

OPEN_FOR_EVER = 5.0  # seconds after which a transaction that nobody is left to end is taken for that


class CrashPlayer(BasePlayer[PlayedDriver]):
    """Plays one schedule of a stage; its programs are processes. A context manager."""

    program = ""  # the module of the programs
    first = ""  # who runs from the start

    def __init__(self, stage: Any, bench: ReplayBench, expires: bool = False):
        super().__init__(stage, bench, expires, OPEN_FOR_EVER)

    def play(self, schedule: Schedule) -> Schedule:
        """Carry out all steps, and return them with what came back and was seen. Raises CannotPlay."""
        return schedule._replace(events=tuple(self._step(n, e) for n, e in enumerate(schedule.events, 1)), anomaly=None)

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
        return event._replace(answer=answer, sees=self._look())

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
            strike = driver.kill if event.action == "crash" else driver.wake
            strike()
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
        settings = {**self._settings(name, self.direct), **self.place(), **self.more_settings(name)}
        self._drivers[name] = PlayedDriver(name, settings, self.program)

    def more_settings(self, name: str) -> dict[str, Any]:
        return {}
