"""The sink's protocol with one step taken out, or two neighbours swapped: made from the generator itself."""

from __future__ import annotations

import functools

from exactly_once_kafka.protocol import Batch, Marker, Protocol, Step, exactly_once, next_step
from labs.schedules.model.state import BatchProtocol


def changed(*steps: Step) -> BatchProtocol:
    """Return the protocol without the one step, or with the two swapped."""
    if len(steps) == 1:
        return functools.partial(without, steps[0])
    return functools.partial(swapped, steps[0], steps[1])


def without(left_out: Step, batch: Batch, has_epoch: bool) -> Protocol:
    """Leave out one of the steps, and go on as if it had gone well."""
    steps, answer = exactly_once(batch, has_epoch), None
    while step := next_step(steps, answer):
        answer = _gone_well(step, batch) if step == left_out else (yield step)


def swapped(first: Step, second: Step, batch: Batch, has_epoch: bool) -> Protocol:
    """Take the second step before the first, wherever the first is taken."""
    steps, answer, early = exactly_once(batch, has_epoch), None, []
    while step := next_step(steps, answer):
        if step == first:
            early.append((yield second))
            answer = yield first
        else:
            answer = early.pop() if step == second and early else (yield step)


def _gone_well(step: str, batch: Batch) -> object:
    """Return the answer with which the protocol goes on to the rows."""
    if step in ("look", "wait and look", "read marker") and batch.previous_plan is not None:
        return Marker(batch.batch_id - 1, batch.query_id, batch.previous_plan)
    return True if step == "rows" else None
