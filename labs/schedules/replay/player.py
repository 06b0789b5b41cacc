"""Carry a schedule out on the real Kafka, step by step, and record what happens.

A schedule that is not what happens is refused at the step where it differs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from labs.faults.proxy import Passage
from labs.schedules.model.kafka import Stage
from labs.schedules.recorder import Recorder
from labs.schedules.replay.actors import Actors
from labs.schedules.replay.bench import CannotPlay, ReplayBench
from labs.schedules.replay.driver import DONE, Driver, Step
from labs.schedules.replay.marker import last_marker
from labs.schedules.replay.network import KINDS
from labs.schedules.replay.played_driver import PlayedDriver
from labs.schedules.schedule import Event, Schedule


class Player(Actors):
    """Plays one schedule of a stage on a bench. A context manager."""

    def __init__(
        self,
        stage: Stage,
        bench: ReplayBench,
        expires: bool = False,
        driver: Callable[[str, dict[str, Any]], Driver] = PlayedDriver,
    ):
        super().__init__(stage, bench, expires, driver)
        self.told: list[Event] = []  # each step with the answer as its driver gives it, who knows no wire
        self._recorder = Recorder(bench.proxy, self.topic, self._marker_topic, driver_of=self._driver_of)

    def start_first(self) -> None:
        """Start driver 1, where everything it sends is recorded."""
        self._stack.enter_context(self._recorder)
        super().start_first()

    def play(self, schedule: Schedule) -> Schedule:
        """Carry out all steps, and return what happened. Raises CannotPlay.

        Its requests, epochs and answers are those on the wire; what a reader sees was asked of one after each step.
        """
        for n, event in enumerate(schedule.events, 1):
            self.step(event, n)
        return self.happened(schedule.stage)

    def happened(self, stage: str) -> Schedule:
        """Return what has happened so far, as it went over the wire."""
        return self._recorder.schedule(stage)

    def step(self, event: Event, number: int) -> Event:
        """Carry out one step, and return it with the driver's answer and what a reader sees. Raises CannotPlay."""
        heard = self._recorder.heard
        with _refused_at(f"step {number} ({event._replace(answer='')})"):
            answer = self.carry_out(event)
            carried = event.action != "lose" and (event.request or event.action) in KINDS
            if not carried or self._recorder.heard == heard:  # or the client refused it by itself
                self._recorder.tell(self._as_told(event, answer))
            sees = self._look()
            self._recorder.looked(self._seen)
            self.told.append(event._replace(answer=answer, sees=sees))
        return self.told[-1]

    @property
    def drivers(self) -> Mapping[str, Driver]:
        """All that were started, dead ones too, by name."""
        return self._drivers

    def upcoming(self, name: str) -> Step | None:
        """Ask a driver for its next step; None where it takes none: it has ended, sleeps, or waits for an answer."""
        driver = self._drivers[name]
        if not driver.alive or driver.asleep:
            return None
        self._hear_late(driver)
        return driver.peek() if driver.alive and not driver.taking else None

    def finish(self) -> str:
        """Let a fresh driver go on from the checkpoint undisturbed, and return where it ended. Raises CannotPlay."""
        self.end()
        name = f"driver {len(self._drivers) + 1}"
        with _refused_at("the undisturbed end"):
            self._start(name, self.checkpoint.noted + 1)
            while (driver := self._drivers[name]).alive:
                step = driver.begin()
                if step.action == "end":
                    return DONE
                answer = driver.answer()
                self._settle(step.action, answer)
        return answer

    def marker(self) -> tuple[int, int] | None:
        """Return the marker that is committed now, read from Kafka: its batch, and where that was planned to end."""
        return last_marker(self.direct, self._marker_topic)

    def due(self) -> range:
        """Return the records whose batch the checkpoint notes as done."""
        noted = self.checkpoint.noted
        return range(self.checkpoint.planned[noted] if noted >= 0 else 0)

    def _as_told(self, event: Event, answer: str) -> Event:
        planned, row = self.checkpoint.planned, None
        if event.action == "plan" and event.batch is not None and event.batch < len(planned):
            row = planned[event.batch] - 1
        return event._replace(answer=answer, epoch=None, sees=None, row=event.row if row is None else row)

    def _driver_of(self, passage: Passage) -> str | None:
        return next((name for name in self._drivers if passage.client_id == self._client(name)), None)


@contextmanager
def _refused_at(where: str) -> Iterator[None]:
    """Say of whatever goes wrong where that was."""
    try:
        yield
    except (TimeoutError, RuntimeError, OSError) as error:
        raise CannotPlay(f"{where} cannot be carried out: {error}") from error
