"""What Kafka does with a request: the transaction coordinator, the topic and the marker in one place."""

from __future__ import annotations

from labs.schedules.model.state import Marker, Request, State

FENCED = "fenced"
Answer = int | str | None  # a new epoch, an error, or nothing in particular


def carried_out(
    state: State, request: Request, *, transactional: bool, idempotent: bool, epoch_by_commit: bool
) -> tuple[State, Answer]:
    """Return the state after a request, and the answer."""
    if request.what == "fence":
        state = end(state, "aborted")
        return state._replace(epoch=state.epoch + 1), state.epoch + 1
    if request.what == "read marker":
        return state, None
    if transactional and request.epoch != state.epoch:
        return state, FENCED
    if request.what == "row":
        key = (request.driver, request.number)
        if idempotent and key in state.remembered:
            return state, "known already"
        if idempotent:
            state = state._replace(remembered=state.remembered | {key})
        assert request.row is not None
        status = "open" if transactional else "committed"
        return state._replace(log=(*state.log, (request.row, request.batch, status))), None
    if request.what == "marker":
        marker = Marker(request.batch, request.end, request.query)
        return state._replace(pending=marker) if transactional else state._replace(marker=marker), None
    assert request.what == "commit", request
    state = end(state, "committed")
    return (state._replace(epoch=state.epoch + 1), state.epoch + 1) if epoch_by_commit else (state, None)


def timed_out(state: State) -> State:
    """Return the state after Kafka has aborted the transaction by itself, which fences its producer."""
    return end(state, "aborted")._replace(epoch=state.epoch + 1)


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
