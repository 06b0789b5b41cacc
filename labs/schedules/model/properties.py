"""What must never be, whatever happens in which order."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import TYPE_CHECKING

from labs.schedules.model.state import Driver, State, all_gone
from labs.schedules.schedule import Event

if TYPE_CHECKING:
    from labs.schedules.model.kafka import Stage


def anomaly(stage: Stage, state: State) -> str | None:
    """Name what is wrong: a record doubled or lost, half a batch visible, a later one first, or a dead end."""
    seen = stage.visible(state)
    records = set(seen)
    if len(records) < len(seen):
        return "doubled"
    if state.noted >= 0 and not records >= set(range(state.planned[state.noted])):
        return "lost"
    if stage.transactional and records:
        # Batches follow each other without a gap, so what is visible begins with 0 and ends where a batch does.
        if records != set(range(len(records))):
            return "out of order"
        if len(records) not in {*state.planned, *state.old_ends, *([state.marker[1]] if state.marker else [])}:
            return "torn"
    # What is left when all drivers are gone and the network is empty.
    rest = state._replace(drivers=(), spare=None, tasks=(), net=frozenset(), luck=(), grown=False)
    rest = rest._replace(remembered=frozenset())
    return None if recovers(stage, rest) else "stuck"


@functools.lru_cache(maxsize=100_000)
def recovers(stage: Stage, state: State) -> bool:
    """Tell whether a fresh driver that nobody disturbs finishes from here, or refuses."""
    for _, following in ending(stage, state):
        state = following
    return state.refused or state.noted == stage.batches - 1


def ending(stage: Stage, state: State) -> Iterator[tuple[Event, State]]:
    """Yield what becomes of a fresh driver that nobody disturbs, once all others have crashed."""
    gone = all_gone(state.drivers)
    state = state._replace(drivers=(*gone, Driver(state.noted + 1)), spare=None, tasks=())
    state = state._replace(net=frozenset(), luck=())
    yield Event("supervisor", "start", state.noted + 1, whose=f"driver {len(gone) + 1}"), state
    while not state.refused and state.drivers[-1].alive and state.drivers[-1].batch < stage.batches:
        event, state = next(stage.moves(state))
        yield event, state
