"""What a driver does next: a fresh generator of the sink's protocol gets the answers that the driver had so far.

Spark takes two steps around the protocol of a batch: it plans the batch before, and notes it as done afterwards. A
wrong protocol may yield "note" itself, and so has the batch noted too early.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Generator
from typing import Any, NamedTuple

from exactly_once_kafka.plan import spelled
from exactly_once_kafka.protocol import STEPS, Batch, MarkerMismatch, Protocol, next_step
from exactly_once_kafka.protocol import Marker as RealMarker
from labs.schedules.model.state import Driver, Marker, State, begin
from labs.schedules.schedule import ScheduleError

BatchProtocol = Callable[[Batch, bool], Protocol]

END, REFUSES = "end", "refuses"  # instead of a step
OVER = ("over",)  # the history of a driver whose protocol has ended: its answers make no difference any more
MOST_STEPS = 30  # of a protocol without faults


class Facts(NamedTuple):
    """What a protocol knows of its batch, in the model's numbers."""

    number: int
    begin: int
    end: int
    query: int
    first: int  # batch of the query


def facts_of(state: State, driver: Driver) -> Facts:
    """Return the facts of the driver's batch, which is planned."""
    return Facts(driver.batch, begin(state, driver.batch), state.planned[driver.batch], state.query, state.first)


def wanted(protocol: BatchProtocol, state: State, driver: Driver) -> str:
    """Return the step that a driver takes next, or END, or REFUSES."""
    if not driver.history:
        return "plan"
    if driver.history[0] == OVER[0]:
        return "note" if driver.history == OVER else END
    return _after(protocol, facts_of(state, driver), driver.has_epoch, driver.history)


def told(protocol: BatchProtocol, state: State, driver: Driver, answer: Any) -> Driver:
    """Return the driver with one more answer."""
    driver = driver._replace(history=(*driver.history, answer), waiting=False)
    if wanted(protocol, state, driver) == "note":
        noted = driver._replace(history=(*driver.history, None))
        if wanted(protocol, state, noted) == END:
            return driver._replace(history=OVER, has_epoch=False)
    return driver


@functools.cache
def _after(protocol: BatchProtocol, facts: Facts, has_epoch: bool, history: tuple[Any, ...]) -> str:
    batch = _real_batch(facts)
    steps = _with_sparks(protocol(batch, has_epoch))
    try:
        step = next_step(steps, None)
        for answer in history:
            step = next_step(steps, _real_marker(answer, facts) if isinstance(answer, Marker) else answer)
    except MarkerMismatch:
        return REFUSES
    return END if step is None else step


def _with_sparks(protocol: Protocol) -> Generator[Any, Any, None]:
    """Yield the steps of a protocol, and Spark's steps before and after them."""
    yield "plan"
    noted, step = False, next_step(protocol, None)
    while step:
        noted = noted or step == "note"
        step = next_step(protocol, (yield step))
    if not noted:
        yield "note"


@functools.cache
def steps_of(protocol: BatchProtocol) -> tuple[str, ...]:
    """Return the steps of a driver's first batch without faults. Raises ScheduleError for an unknown step."""
    steps, history = list[str](), tuple[Any, ...]()
    while (step := _after(protocol, Facts(0, 0, 1, 0, 0), False, history)) not in (END, REFUSES):
        if step not in ("plan", "note", *STEPS):
            raise ScheduleError(f"there is no step {step!r}; there are: {', '.join(STEPS)}")
        if step == "plan" and steps:
            raise ScheduleError('Spark plans a batch before its protocol begins, and a protocol has no step "plan"')
        if len(steps) == MOST_STEPS:
            raise ScheduleError(f"the protocol takes more than {MOST_STEPS} steps for a batch, and has no end")
        steps.append(step)
        history += (True if step == "rows" else None,)
    return tuple(steps)


def _real_batch(facts: Facts) -> Batch:
    number = facts.number - facts.first
    return Batch(_query(facts.query), number, _plan(facts.end), _plan(facts.begin) if number else None)


def _real_marker(marker: Marker, facts: Facts) -> RealMarker:
    return RealMarker(marker.batch - facts.first, _query(marker.query), _plan(marker.end))


def _query(query: int) -> str:
    return f"query {query}"


def _plan(end: int) -> str:
    return spelled({"end": end})
