"""What a driver does for a batch: its next step, and what it makes of the answer.

Its steps are the stage's program, one after the other; the decision is that of a sink with a marker.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from labs.schedules.model.broker import FENCED
from labs.schedules.model.state import Driver, Marker, Request, State, begin, with_driver
from labs.schedules.schedule import Event

if TYPE_CHECKING:
    from labs.schedules.model.kafka import Stage


def acts(stage: Stage, state: State, n: int, driver: Driver) -> tuple[Event, State]:
    """Let a driver take its next step: write to its checkpoint, or send a request."""
    step = stage.program[driver.step]
    if step == "plan":
        return _plans(stage, state, n, driver)
    if step == "note":
        return _notes(stage, state, n, driver)
    request = request_of(state, n, driver, "row" if step == "rows" else step)
    return request.sent, with_driver(state._replace(net=state.net | {request}), n, driver._replace(waiting=True))


def request_of(state: State, n: int, driver: Driver, what: str) -> Request:
    batch, number = driver.batch, driver.batch * 100 + driver.step * 10 + driver.row
    row = begin(state, batch) + driver.row if what == "row" else None
    return Request(n, what, batch, row, driver.epoch, number, state.planned[batch], state.query)


def _plans(stage: Stage, state: State, n: int, driver: Driver) -> tuple[Event, State]:
    """Write down what is in the batch, or find it there: from then on it stays so."""
    event = Event(f"driver {n + 1}", "plan", driver.batch)
    if state.hole:
        return event._replace(answer="the state of the batch before is missing"), ended(state, n, driver)
    following = with_driver(state, n, next_step(stage, driver))
    if driver.batch < len(state.planned):
        event = event._replace(row=state.planned[driver.batch] - 1)
        if driver.fresh:
            return event._replace(answer="as planned before"), following
        return event._replace(answer="another driver has"), ended(state, n, driver)
    end = min(begin(state, driver.batch) + stage.rows + state.grown, stage.rows * stage.batches)
    return event._replace(row=end - 1), following._replace(planned=(*state.planned, end), grown=False)


def _notes(stage: Stage, state: State, n: int, driver: Driver) -> tuple[Event, State]:
    """Note the batch as done; where another driver has, Spark finds the file there, and fails."""
    event, taken = Event(f"driver {n + 1}", "note", driver.batch), state.noted >= driver.batch
    state = state._replace(noted=max(state.noted, driver.batch), hole=state.hole or not driver.computed)
    if taken:
        return event._replace(answer="it is noted"), ended(state, n, driver)
    return event, with_driver(state, n, next_step(stage, driver))


def next_step(stage: Stage, driver: Driver) -> Driver:
    """Go on to the next step of the program, or to the next batch."""
    if driver.step + 1 < len(stage.program):
        return driver._replace(step=driver.step + 1)
    return driver._replace(batch=driver.batch + 1, step=0, fresh=False, computed=False, again=False)


def hears(stage: Stage, state: State, n: int, request: Request, answer: str) -> State:
    """Let a driver go on after an answer."""
    driver = state.drivers[n]._replace(waiting=False)
    if answer == FENCED:
        return ended(state, n, driver)
    if answer.startswith("epoch "):
        driver = driver._replace(epoch=state.epoch)
    if request.what == "read marker":
        return stage.decides(state, n, driver, state.marker)
    if request.what == "row" and begin(state, driver.batch) + driver.row + 1 < state.planned[driver.batch]:
        return with_driver(state, n, driver._replace(row=driver.row + 1))
    if request.what == "row":
        driver = driver._replace(row=0, computed=True)
    return with_driver(state, n, next_step(stage, driver))


def decides(stage: Stage, state: State, n: int, driver: Driver, marker: Marker | None) -> State:
    """Publish, skip what is published, or refuse what does not fit."""
    following = next_step(stage, driver)
    end, before = state.planned[driver.batch], marker.batch if marker else state.first - 1
    if marker and before == driver.batch and (marker.end == end or not stage.marker_says_plan):
        skipped = driver._replace(step=stage.program.index("note"), computed=stage.drains)
        return with_driver(state, n, skipped)
    if before == driver.batch - 1:
        return with_driver(state, n, following)
    return ended(state._replace(refused=True), n, following)


def ended(state: State, n: int, driver: Driver) -> State:
    """Let a driver end that is fenced, refuses, or finds its place taken."""
    return with_driver(state, n, driver._replace(alive=False))
