"""A hot spare: a driver that is up and waits. It reads nothing, and asks for no epoch, before it is told to take over.

It may be told at any moment: the driver before it has crashed, or is only believed dead, and wakes up later. When it
has been told it reads the checkpoint, at any moment after that, and is a driver like any other from then on.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from labs.schedules.model.broker import end
from labs.schedules.model.driver import decides, next_step
from labs.schedules.model.kafka import Stage
from labs.schedules.model.state import NEVER, Driver, Spare, State
from labs.schedules.schedule import Event


@dataclass(frozen=True)
class SpareStage(Stage):
    """Whoever comes next has been kept warm. `early` is what a wrong spare does in that time: fence, read marker."""

    early: tuple[str, ...] = ()

    def _supervisor(self, state: State) -> Iterator[tuple[Event, State]]:
        name = _name(state)
        if state.spare is None and len(state.drivers) < self.drivers and not state.refused:
            yield Event("supervisor", "warm up", whose=name), state._replace(spare=Spare())
        elif state.spare and not state.spare.told and not state.refused:
            told = state.spare._replace(told=True)
            yield Event("supervisor", "hand over", whose=name), state._replace(spare=told)

    def _drivers(self, state: State) -> Iterator[tuple[Event, State]]:
        if state.spare and not state.refused:
            yield from self._takes_over(state, state.spare) if state.spare.told else self._is_early(state, state.spare)
        yield from super()._drivers(state)

    def _takes_over(self, state: State, spare: Spare) -> Iterator[tuple[Event, State]]:
        batch = state.noted + 1
        driver = Driver(batch, epoch=spare.epoch, saw=spare.saw)
        yield Event(_name(state), "take over", batch), state._replace(drivers=(*state.drivers, driver), spare=None)

    def _is_early(self, state: State, spare: Spare) -> Iterator[tuple[Event, State]]:
        if "fence" in self.early and spare.epoch == NEVER:
            fenced = end(state, "aborted")._replace(epoch=state.epoch + 1)
            holds = fenced._replace(spare=spare._replace(epoch=fenced.epoch))
            yield Event(_name(state), "fence", answer=f"epoch {fenced.epoch}"), holds
        if "read marker" in self.early and not spare.saw:
            answer = f"batch {state.marker.batch}" if state.marker else "none"
            saw = state._replace(spare=spare._replace(saw=(state.marker,)))
            yield Event(_name(state), "read marker", answer=answer), saw

    def _acts(self, state: State, n: int, driver: Driver) -> tuple[Event, State]:
        """Let a spare that has read the marker too early go on with what it read."""
        if not (driver.saw and self.program[driver.step] in ("look", "read marker")):
            return super()._acts(state, n, driver)
        [marker] = driver.saw
        saw = driver.saw if self.program[driver.step] == "look" else ()
        decided = decides(self, state._replace(marker=marker), n, next_step(self, driver._replace(saw=saw)))
        event = Event(f"driver {n + 1}", "read marker", driver.batch, answer="as it was before")
        return event, decided._replace(marker=state.marker)

    def anomaly(self, state: State) -> str | None:
        """Name what is wrong: `usurped`, if a driver is fenced by a spare that nobody has told; or what else may be."""
        spare = state.spare
        if spare and not spare.told and any(d.alive and NEVER < d.epoch < spare.epoch for d in state.drivers):
            return "usurped"
        return super().anomaly(state)


def _name(state: State) -> str:
    return f"driver {len(state.drivers) + 1}"
