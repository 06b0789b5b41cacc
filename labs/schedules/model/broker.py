"""What Kafka does with a request: the transaction coordinator, the topic and the marker in one place."""

from __future__ import annotations

from typing import TYPE_CHECKING

from labs.schedules.model.state import Marker, Request, State

if TYPE_CHECKING:
    from labs.schedules.model.kafka import Stage

FENCED = "fenced"


def carried_out(stage: Stage, state: State, request: Request) -> tuple[State, str]:
    """Return the state after a request, and the answer."""
    if request.what == "fence":
        return with_new_epoch(end(state, "aborted"))
    if request.what == "read marker":
        return state, in_words(state.marker)
    if stage.transactional and request.epoch != state.epoch:
        return state, FENCED
    if request.what == "row":
        return _written(stage, state, request)
    if request.what == "marker":
        marker = Marker(request.batch, request.end, request.query)
        return (state._replace(pending=marker) if stage.transactional else state._replace(marker=marker)), "ok"
    assert request.what == "commit", request
    state = end(state, "committed")
    return with_new_epoch(state) if stage.epoch_by_commit else (state, "ok")


def _written(stage: Stage, state: State, request: Request) -> tuple[State, str]:
    """Write a record, unless its producer has sent one with this sequence number before."""
    key = (request.driver, request.number)
    if stage.idempotent and key in state.remembered:
        return state, "known already"
    assert request.row is not None
    record = (request.row, request.batch, "open" if stage.transactional else "committed")
    remembered = state.remembered | {key} if stage.idempotent else state.remembered
    return state._replace(log=(*state.log, record), remembered=remembered), "ok"


def with_new_epoch(state: State) -> tuple[State, str]:
    """Grant the next epoch, which fences who has an older one."""
    return state._replace(epoch=state.epoch + 1), f"epoch {state.epoch + 1}"


def is_open(state: State) -> bool:
    """Tell whether there is a transaction to end."""
    return state.pending is not None or any(status == "open" for _, _, status in state.log)


def end(state: State, outcome: str) -> State:
    """End the open transaction, if there is one: `committed` or `aborted`."""
    if not is_open(state):
        return state
    log = tuple((r, b, outcome if status == "open" else status) for r, b, status in state.log)
    marker = state.pending if outcome == "committed" and state.pending else state.marker
    return state._replace(log=log, marker=marker, pending=None)


def in_words(marker: Marker | None) -> str:
    return f"batch {marker.batch}" if marker else "none"
