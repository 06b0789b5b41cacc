"""A hot spare: a driver that is up and waits. It reads nothing, and asks for no epoch, before it is told to take over.

It may be told at any moment: the driver before it has crashed, or is only believed dead, and wakes up later. When it
has been told it reads the checkpoint, at any moment after that, and is a driver like any other from then on.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from labs.schedules.model.broker import end, in_words, with_new_epoch
from labs.schedules.model.state import NEVER, Driver, Spare, State
from labs.schedules.model.variants import AsBuilt
from labs.schedules.schedule import Event


@dataclass(frozen=True)
class WithSpare(AsBuilt):
    """Whoever comes next has been kept warm. `early` is what a wrong spare does in that time: fence, read marker."""

    early: tuple[str, ...] = ()

    def _supervisor(self, state: State, name: str) -> Iterator[tuple[Event, State]]:
        spare = state.spare
        if spare is None:
            yield Event("supervisor", "warm up", whose=name), state._replace(spare=Spare())
        elif spare.told:
            driver = Driver(state.noted + 1, epoch=spare.epoch, saw=spare.saw)
            after = state._replace(drivers=(*state.drivers, driver), spare=None)
            yield Event(name, "take over", driver.batch), after
        else:
            yield from self._hurries(state, spare, name)
            told = state._replace(spare=spare._replace(told=True))
            yield Event("supervisor", "hand over", whose=name), told

    def _hurries(self, state: State, spare: Spare, name: str) -> Iterator[tuple[Event, State]]:
        if "fence" in self.early and spare.epoch == NEVER:
            after, answer = with_new_epoch(end(state, "aborted"))
            yield Event(name, "fence", answer=answer), after._replace(spare=spare._replace(epoch=after.epoch))
        if "read marker" in self.early and not spare.saw:
            saw = spare._replace(saw=(state.marker,))
            yield Event(name, "read marker", answer=in_words(state.marker)), state._replace(spare=saw)

    def _driver(self, state: State, n: int, driver: Driver) -> Iterator[tuple[Event, State]]:
        """Let a spare that has read the marker too early go on with what it read."""
        if driver.saw and self.program[driver.step] in ("look", "read marker"):
            [marker] = driver.saw
            saw = driver.saw if self.program[driver.step] == "look" else ()
            event = Event(f"driver {n + 1}", "read marker", driver.batch, answer="as it was before")
            yield event, self.decides(state, n, driver._replace(saw=saw), marker)
        else:
            yield from super()._driver(state, n, driver)

    def anomaly(self, state: State) -> str | None:
        """Name what is wrong: `usurped`, if a driver is fenced by a spare that nobody has told; or what else may be."""
        spare = state.spare
        if spare and not spare.told and any(d.alive and NEVER < d.epoch < spare.epoch for d in state.drivers):
            return "usurped"
        return super().anomaly(state)
