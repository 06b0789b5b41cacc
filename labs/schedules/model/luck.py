"""Bad luck that strikes neither a driver nor a request: what it makes of a state that has it behind it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from labs.schedules.model.broker import end, is_open, with_new_epoch
from labs.schedules.model.state import Driver, State, all_gone
from labs.schedules.schedule import Event

if TYPE_CHECKING:
    from labs.schedules.model.kafka import Stage

Moves = Iterator[tuple[Event, State]]


def _time_out(stage: Stage, state: State) -> Moves:
    """Let Kafka abort a transaction by itself, which fences its producer."""
    if is_open(state):
        yield Event("broker", "time out"), with_new_epoch(end(state, "aborted"))[0]


def _forget_the_marker(stage: Stage, state: State) -> Moves:
    if state.marker:
        yield Event("broker", "forget the marker"), state._replace(marker=None, topic=state.topic + 1)


def _restore_and_start(stage: Stage, state: State) -> Moves:
    """Restore a checkpoint without the last batch, from a source that has grown since then; the drivers are gone."""
    if state.planned and len(state.drivers) < stage.drivers and not state.refused:
        batch = min(state.noted + 1, len(state.planned) - 1)
        drivers = (*all_gone(state.drivers), Driver(batch))
        restored = state._replace(drivers=drivers, planned=state.planned[:-1], noted=batch - 1, grown=True)
        yield Event("supervisor", "restore and start", batch, whose=f"driver {len(drivers)}"), restored


LUCK = {"time out": _time_out, "forget the marker": _forget_the_marker, "restore and start": _restore_and_start}
