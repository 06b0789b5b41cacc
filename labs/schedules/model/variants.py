"""What some stages do otherwise: the sink as built, a marker that the checkpoint vouches for, no checkpoint at all."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields
from typing import ClassVar, Literal

from labs.schedules.model.driver import ended, next_step, request_of
from labs.schedules.model.kafka import STEPS, Stage
from labs.schedules.model.state import COMING, NEVER, Driver, Marker, Request, State, all_gone, with_driver
from labs.schedules.schedule import Event


@dataclass(frozen=True)
class AsBuilt(Stage):
    """Two more steps: `look`, a reading of the marker by a driver that has no epoch yet; and `fence ahead`, which asks
    for the next batch's epoch and does not wait for it."""

    steps: ClassVar = (*STEPS, "look", "fence ahead")

    def _driver(self, state: State, n: int, driver: Driver) -> Iterator[tuple[Event, State]]:
        if self.program[driver.step] == "look" and driver.epoch != NEVER:
            driver = next_step(self, driver)
        step = self.program[driver.step]
        if driver.epoch == COMING and step == "fence":
            return  # until it is there
        if step not in ("look", "fence ahead"):
            yield from super()._driver(state, n, driver)
            return
        request = request_of(state, n, driver, "read marker" if step == "look" else "fence")
        after = driver._replace(waiting=True) if step == "look" else next_step(self, driver)._replace(epoch=COMING)
        yield request.sent, with_driver(state._replace(net=state.net | {request}), n, after)

    def _hears(self, state: State, n: int, request: Request, answer: str) -> State:
        driver = state.drivers[n]
        if request.what == "fence" and driver.epoch == COMING:
            return with_driver(state, n, driver._replace(epoch=state.epoch))
        return super()._hears(state, n, request, answer)


@dataclass(frozen=True)
class Witnessed(Stage):
    """The checkpoint says in which topic the marker was to be, before anything was published: a new one is refused."""

    def decides(self, state: State, n: int, driver: Driver, marker: Marker | None) -> State:
        if not marker and state.witness not in (None, state.topic):
            return ended(state._replace(refused=True), n, next_step(self, driver))
        decided = super().decides(state, n, driver, marker)
        return decided if marker or decided.refused else decided._replace(witness=state.topic)


@dataclass(frozen=True)
class WithoutCheckpoint(Stage):
    """Who starts next finds no checkpoint: a new query, from the earliest record, or behind the latest."""

    restarts_from: Literal["earliest", "latest"] = "earliest"

    def _supervisor(self, state: State, name: str) -> Iterator[tuple[Event, State]]:
        """Start a new query. Its batches are counted on, where it skips what is planned."""
        planned = state.planned if self.restarts_from == "latest" else ()
        batch = len(planned)
        fresh = state._replace(drivers=(*all_gone(state.drivers), Driver(batch)), planned=planned, noted=batch - 1)
        event = Event("supervisor", "start anew", row=planned[-1] if planned else 0, whose=name)
        old = state.old_ends | frozenset(state.planned)
        yield event, fresh._replace(hole=False, query=state.query + 1, first=batch, old_ends=old)

    def decides(self, state: State, n: int, driver: Driver, marker: Marker | None) -> State:
        """Refuse the marker of another query."""
        if marker and marker.query != state.query:
            return ended(state._replace(refused=True), n, next_step(self, driver))
        return super().decides(state, n, driver, marker)


def without_checkpoint(stage: Stage, restarts_from: Literal["earliest", "latest"]) -> WithoutCheckpoint:
    """Return the same stage where no checkpoint is kept."""
    return WithoutCheckpoint(**{f.name: getattr(stage, f.name) for f in fields(Stage)}, restarts_from=restarts_from)
