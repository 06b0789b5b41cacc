"""The steps of a batch as a student writes them: what can be read of them, what the model finds, and its picture."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from labs.schedules.diagram import draw
from labs.schedules.model.checker import Explored, explore, with_sight
from labs.schedules.model.kafka import Stage
from labs.schedules.model.stages import OLD_CHECKPOINT
from labs.schedules.model.state import State
from labs.schedules.schedule import Event, Schedule, compact
from labs.schedules.svg import Drawing

STEPS = ("plan", "fence", "fence once", "read marker", "rows", "marker", "commit", "note")
FENCES = ("fence", "fence once")
NAME = "your batch"


class NoBatch(ValueError):
    """The steps are none of a batch; the message says which, and why."""


class Unreadable(NoBatch):
    """What was returned is no list of steps: the message says what it is."""


def stage_of(steps: object) -> Stage:
    """Return the steps as a stage of the model. Raises NoBatch for what no driver could run, or what says nothing."""
    if not isinstance(steps, list | tuple):
        raise Unreadable(f"batch() returns a list of steps, and not {steps!r}")
    for step in steps:
        if step not in STEPS:
            raise Unreadable(f"there is no step {step!r}; there are: {', '.join(STEPS)}")
    for step in ("rows", "note"):
        if step not in steps:
            raise NoBatch(f"{step!r} is missing: every batch has it")
    for step in STEPS:
        if step != "commit" and steps.count(step) > 1:
            raise NoBatch(f"{step!r} is there {steps.count(step)} times; only a commit may come again")
    if steps[0] != "plan":
        raise NoBatch(
            f"'plan' comes first, and here it is {steps[0]!r}: without a plan nobody knows what is in the batch"
        )
    if set(FENCES) <= set(steps):
        raise NoBatch("'fence' and 'fence once' are both there: an epoch is for one batch, or for all of a driver's")
    _check_transactions(steps)
    once = "fence once" in steps
    return Stage(NAME, tuple("fence" if step in FENCES else step for step in steps), keeps_epoch=once)


def _check_transactions(steps: Sequence[str]) -> None:
    to_commit = False
    for n, step in enumerate(steps):
        fenced = not set(FENCES).isdisjoint(steps[:n])
        if step in (*FENCES, "marker") and "commit" not in steps[n:]:
            raise NoBatch(f"{step!r} has no 'commit' after it: it is part of a transaction")
        if step in ("rows", "marker") and "commit" in steps and not fenced:
            raise NoBatch(f"{step!r} has no 'fence' before it: in a transaction it needs an epoch")
        if step == "read marker" and "marker" not in steps:
            raise NoBatch("'read marker' finds nothing: there is no 'marker' among the steps")
        if step == "commit" and not fenced:
            raise NoBatch("'commit' has no 'fence' before it: a transaction needs an epoch")
        if step == "commit" and not to_commit:
            raise NoBatch("'commit' commits nothing: there are neither 'rows' nor 'marker' before it")
        to_commit = step in ("rows", "marker") or (to_commit and step != "commit")


def undisturbed(stage: Stage) -> tuple[Schedule, State]:
    """Return what one driver does whom nobody disturbs, and the state that it leaves."""
    stage = dataclasses.replace(stage, luck=(), drivers=1)
    state, moves = stage.start(), list[Event]()
    while following := next(stage.moves(state), None):
        moves.append(with_sight(stage, following[0], state, following[1]))
        state = following[1]
    return Schedule(stage.name, compact(moves)), state


def every_interleaving(stage: Stage) -> tuple[Stage, Explored]:
    """Explore the stage with what may go wrong by default, and if that finds nothing, with an older checkpoint too.

    Returns the stage in which an anomaly is found, or the last one; `states` are those of both.
    """
    by_default = explore(stage)
    if by_default.anomaly:
        return stage, by_default
    restored = dataclasses.replace(stage, luck=OLD_CHECKPOINT)
    found = explore(restored)
    return restored, dataclasses.replace(found, states=by_default.states + found.states)


def counterexample(steps: Sequence[str]) -> Drawing:
    """Draw the shortest schedule in which a batch of these steps goes wrong; one without steps if none does.

    Raises NoBatch if they are none of a batch.
    """
    found = explore_batch(steps)
    if found.anomaly:
        return draw(found.schedule)
    return draw(Schedule(f"{NAME}, {found.states:,} states", ()))


def explore_batch(steps: Sequence[str]) -> Explored:
    """Return what the model finds for a batch of these steps. Raises NoBatch if they are none."""
    _, found = every_interleaving(stage_of(steps))
    return found
