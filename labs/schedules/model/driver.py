"""What a driver does for a batch: its next step, and what it makes of the answer.

Its steps are the stage's program, one after the other; the decision is that of a sink with a marker.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from labs.schedules.model.broker import FENCED, Answer
from labs.schedules.model.state import COMING, NEVER, Driver, Request, State, begin, with_driver
from labs.schedules.schedule import Event

if TYPE_CHECKING:
    from labs.schedules.model.kafka import Stage

REQUEST = {"look": "read marker", "fence ahead": "fence"}  # what a step sends, where it has another name


def acts(stage: Stage, state: State, n: int, driver: Driver) -> tuple[Event, State]:
    """Let a driver take its next step: write to its checkpoint, or send a request."""
    actor, step, batch = f"driver {n + 1}", stage.program[driver.step], driver.batch
    if step == "plan":
        return _plans(stage, state, n, driver)
    if step == "note":
        noted = state._replace(noted=max(state.noted, batch), hole=state.hole or not driver.computed)
        if state.noted >= batch:  # another driver has: Spark finds the file there, and fails
            return Event(actor, "note", batch, answer="it is noted"), _ended(state, n, driver)
        return Event(actor, "note", batch), with_driver(noted, n, next_step(stage, driver))
    what, row = ("row", begin(state, batch) + driver.row) if step == "rows" else (REQUEST.get(step, step), None)
    number = batch * 100 + driver.step * 10 + driver.row
    request = Request(n, what, batch, row, driver.epoch, number, state.planned[batch], state.query)
    sent = state._replace(net=state.net | {request})
    event = Event(actor, what, batch, row, None if what in ("fence", "read marker") else driver.epoch)
    if step == "fence ahead":
        return event, with_driver(sent, n, next_step(stage, driver)._replace(epoch=COMING))
    return event, with_driver(sent, n, driver._replace(waiting=True))


def at_its_step(stage: Stage, driver: Driver) -> Driver:
    """Pass over what a driver need not do because it has an epoch, or will have one."""
    needless: tuple[str, ...] = ()
    if driver.epoch != NEVER:
        needless = ("look", "fence") if stage.keeps_epoch and driver.epoch != COMING else ("look",)
    while stage.program[driver.step] in needless:
        driver = driver._replace(step=driver.step + 1)
    return driver


def next_step(stage: Stage, driver: Driver) -> Driver:
    """Go on to the next step of the program, or to the next batch."""
    if driver.step + 1 < len(stage.program):
        return driver._replace(step=driver.step + 1)
    return driver._replace(batch=driver.batch + 1, step=0, fresh=False, computed=False)


def _plans(stage: Stage, state: State, n: int, driver: Driver) -> tuple[Event, State]:
    batch, following = driver.batch, with_driver(state, n, next_step(stage, driver))
    if state.hole:
        event = Event(f"driver {n + 1}", "plan", batch, answer="the state of the batch before is missing")
        return event, _ended(state, n, driver)
    if batch < len(state.planned):
        event = Event(f"driver {n + 1}", "plan", batch, state.planned[batch] - 1)
        if driver.fresh:
            return event._replace(answer="as planned before"), following
        return event._replace(answer="another driver has"), _ended(state, n, driver)
    end = min(begin(state, batch) + stage.rows + state.grown, stage.rows * stage.batches)
    planned = following._replace(planned=(*state.planned, end), grown=False)
    return Event(f"driver {n + 1}", "plan", batch, end - 1), planned


def hears(stage: Stage, state: State, n: int, driver: Driver, request: Request, answer: Answer) -> State:
    """Let a driver go on after an answer."""
    following = next_step(stage, driver)
    if answer == FENCED:
        return _ended(state, n, driver)
    if isinstance(answer, int):
        following = following._replace(epoch=answer)
    if request.what == "read marker":
        return decides(stage, state, n, following)
    if request.what == "row":
        row = driver.row + 1
        more = row < state.planned[driver.batch] - begin(state, driver.batch)
        following = driver._replace(row=row) if more else following._replace(row=0, computed=True)
    return with_driver(state, n, following)


def decides(stage: Stage, state: State, n: int, following: Driver) -> State:
    """Publish, skip what is published, or refuse what does not fit."""
    batch, end = following.batch, state.planned[following.batch]
    marker = state.marker
    ours = marker is not None and marker.query == state.query
    if marker and ours and marker.batch == batch and (marker.end == end or not stage.marker_says_plan):
        skipped = following._replace(step=stage.program.index("note"), computed=stage.drains)
        return with_driver(state, n, skipped)
    follows = ours and marker.batch == batch - 1 if marker else batch == state.first
    if follows and (marker or state.witness in (None, state.topic)):
        if stage.has_witness and not state.marker:
            state = state._replace(witness=state.topic)
        return with_driver(state, n, following)
    return _ended(state._replace(refused=True), n, following)


def _ended(state: State, n: int, driver: Driver) -> State:
    """Let a driver end that is fenced, refuses, or finds its place taken."""
    return with_driver(state, n, driver._replace(alive=False))
