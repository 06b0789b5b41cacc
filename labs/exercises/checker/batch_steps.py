"""A student's protocol in the model: refused if no driver could run it, else explored, and drawn if it goes wrong."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

from labs.exercises.checker.protocol_table import NoProtocol, all_courses, from_table, table_of
from labs.exercises.checker.scenario import WRONG
from labs.schedules.diagram import draw
from labs.schedules.model.checker import Explored, explore, with_sight
from labs.schedules.model.stage import Stage
from labs.schedules.model.stages import OLD_CHECKPOINT
from labs.schedules.model.state import State
from labs.schedules.schedule import Event, Schedule, compact
from labs.schedules.svg import Drawing

FENCES = ("fence", "next epoch")
NAME = "your protocol"


def stage_of(table: object) -> Stage:
    """Return a table as a stage of the model. Raises NoTable, and NoProtocol if no driver could run it."""
    protocol = from_table(table)
    every = all_courses(table)
    *first, end = every[0][1]  # in batch 0, where nothing is marked as published
    if end is None and "rows" not in first:
        raise NoProtocol(
            WRONG, f"publish ends without 'rows' in batch 0, of which nothing is published: {_listed(first)}"
        )
    if any(not {"commit", *FENCES}.isdisjoint(steps) for _, steps in every):
        for situation, steps in every:
            _check_transactions(situation.has_epoch, steps)
    return Stage(NAME, protocol)


def _check_transactions(has_epoch: bool, steps: Sequence[str | None]) -> None:
    """Raise NoProtocol for a sequence with a step that a Kafka client would refuse or ignore."""
    written = False
    for n, step in enumerate(steps):
        if step in ("rows", "marker", "commit") and not has_epoch:
            raise NoProtocol(
                WRONG, f"{step!r} has no 'fence' before it, and a transaction needs an epoch: {_listed(steps[: n + 1])}"
            )
        if step == "commit" and not written:
            raise NoProtocol(
                WRONG, f"'commit' has neither 'rows' nor 'marker' before it to commit: {_listed(steps[: n + 1])}"
            )
        has_epoch = has_epoch or step in FENCES
        written = step in ("rows", "marker") or (written and step not in ("commit", *FENCES))


def _listed(steps: Sequence[str | None]) -> str:
    return ", ".join(map(str, steps)) or "no step at all"


def undisturbed(stage: Stage) -> tuple[Schedule, State]:
    """Return what a single, undisturbed driver does, and the state that it leaves."""
    stage = dataclasses.replace(stage, faults=(), drivers=1)
    state, moves = stage.start(), list[Event]()
    while following := next(stage.moves(state), None):
        moves.append(with_sight(stage, following[0], state, following[1]))
        state = following[1]
    return Schedule(stage.name, compact(moves)), state


def every_interleaving(stage: Stage) -> tuple[Stage, Explored]:
    """Explore the stage with its default faults and, if that finds nothing, with an older checkpoint too.

    Returns the stage that has an anomaly, or the last one; `states` counts those of both.
    """
    by_default = explore(stage)
    if by_default.anomaly:
        return stage, by_default
    restored = dataclasses.replace(stage, faults=OLD_CHECKPOINT)
    found = explore(restored)
    return restored, dataclasses.replace(found, states=by_default.states + found.states)


def counterexample(publish: Callable[..., Any]) -> Drawing:
    """Draw the shortest schedule in which a protocol goes wrong, an empty one if there is none. Raises NoProtocol."""
    found = explore_batch(publish)
    if found.anomaly:
        return draw(found.schedule)
    return draw(Schedule(f"{NAME}, {found.states:,} states", ()))


def explore_batch(publish: Callable[..., Any]) -> Explored:
    """Return what the model finds for a protocol. Raises NoProtocol."""
    _, found = every_interleaving(stage_of(table_of(publish)))
    return found
