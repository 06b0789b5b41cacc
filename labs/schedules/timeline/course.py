"""What becomes of two batches when one thing goes wrong: the model carries it out, step by step.

The network is quiet: what is sent arrives at once. Either the driver crashes at a place and another one starts; or the
acknowledgement of what it sent last before that place is lost, so that the request comes a second time.
"""

from __future__ import annotations

import dataclasses
from functools import lru_cache
from typing import NamedTuple

from labs.schedules.model.kafka import Stage
from labs.schedules.model.state import State, with_driver
from labs.schedules.schedule import REQUESTS, SUPERVISOR, Event
from labs.schedules.timeline.places import PLACES, STATION_OF, Place
from labs.schedules.timeline.switches import ROWS, Switches

CRASH, LOST_ACKNOWLEDGEMENT = "crash", "lost acknowledgement"
FAULTS = (CRASH, LOST_ACKNOWLEDGEMENT)
AGAIN = "deliver again"  # in the model's words


class Moment(NamedTuple):
    """What happened, and the model's state afterwards."""

    event: Event
    state: State


class Course(NamedTuple):
    """The moments up to the fault, it included, and those behind it, until nothing moves any more."""

    stage: Stage
    fault: str
    place: Place
    before: tuple[Moment, ...]
    after: tuple[Moment, ...]

    @property
    def broken(self) -> State:
        """The state in the moment of the fault."""
        return self.before[-1].state if self.before else self.stage.start()

    @property
    def is_disturbed(self) -> bool:
        """Whether the fault found something: a crash always does, an acknowledgement may not be under way."""
        return self.fault == CRASH or any(event.action == AGAIN for event, _ in self.before[-1:])

    @property
    def end_of_first(self) -> int:
        """The last batch in commits/ when the fault struck; -1 for none."""
        return self.broken.noted

    @property
    def finds_its_marker(self) -> bool:
        """Whether the restart finds the batch in flight published."""
        batch = self.end_of_first + 1
        return any((e.request, e.batch, e.answer) == ("read marker", batch, f"batch {batch}") for e, _ in self.after)

    @property
    def end(self) -> State:
        return (self.before + self.after)[-1].state


def course_of(switches: Switches, fault: str, place: int) -> Course:
    """Return what happens with these switches if `fault` strikes at the place of this number."""
    return _course(switches.effective._replace(read_committed=True), fault, PLACES[place])


@lru_cache(maxsize=4096)
def _course(switches: Switches, fault: str, place: Place) -> Course:
    stage = switches.stage
    if fault == LOST_ACKNOWLEDGEMENT:
        stage = dataclasses.replace(stage, luck=(AGAIN,), drivers=1)
    state, before = stage.start(), list[Moment]()
    while (move := _next(stage, state, place)) and not (fault == CRASH and _reaches(stage, state, place)):
        before.append(Moment(*move))
        state = before[-1].state
        if before[-1].event.action == AGAIN:
            break
    if fault == CRASH:
        state = with_driver(state, 0, state.drivers[0]._replace(alive=False))
        before.append(Moment(Event("driver 1", "crash"), state))
        [start] = [Moment(*move) for move in stage.moves(state) if move[0].action in SUPERVISOR]
        after = [start]
        state = start.state
    else:
        after = []
    while move := _next(stage, state, place):
        after.append(Moment(*move))
        state = after[-1].state
    return Course(stage, fault, place, tuple(before), tuple(after))


def _next(stage: Stage, state: State, place: Place) -> tuple[Event, State] | None:
    """Return what happens next where only the fault disturbs: the request just before the place comes twice."""
    quiet = None
    for event, following in stage.moves(state):
        if event.action == AGAIN and _is_last_before(event, place):
            return event, following
        if not quiet and event.action not in (AGAIN, *SUPERVISOR):
            quiet = event, following
        if quiet and not stage.luck:
            return quiet
    return quiet


def _reaches(stage: Stage, state: State, place: Place) -> bool:
    """Tell whether what the first driver does next lies behind the place."""
    driver = state.drivers[0]
    return not state.net and (driver.batch, STATION_OF[stage.program[driver.step]], driver.row) >= place.reached


def _is_last_before(event: Event, place: Place) -> bool:
    """Tell whether a request is the last one before the place, and one whose answer may be lost: a write to Kafka."""
    assert event.request in REQUESTS
    if event.request not in ("row", "marker", "commit"):
        return False
    here = (event.batch, STATION_OF[event.request])
    if event.request == "row":
        row = (event.row or 0) % ROWS + 1
        return place.station in ("half", "rows") and here == (place.batch, 4) and row == (place.reached[2] or ROWS)
    return here == (place.batch, place.reached[1] - 1) and place.station == event.request
