"""Try every order in which things can happen, breadth first, so that the first anomaly has the fewest steps."""

from __future__ import annotations

import contextlib
import gc
import time
from collections import Counter, deque
from collections.abc import Callable, Hashable, Iterator
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeVar

from labs.schedules.schedule import Event, Schedule, compact

State = TypeVar("State", bound=Hashable)


class Model(Protocol[State]):
    """What the checker needs: the first state, the moves from a state, and the anomalies."""

    @property
    def name(self) -> str: ...

    def start(self) -> State: ...

    def moves(self, state: State) -> Iterator[tuple[Event, State]]:
        """Yield everything that can happen next, and the state to which it leads."""
        ...

    def anomaly(self, state: State) -> str | None:
        """Return the name of the state's anomaly, None if nothing is wrong."""
        ...

    def ending(self, state: State) -> Iterator[tuple[Event, State]]:
        """Yield the moves to the end from a state that is stuck, if they show anything."""
        ...

    def visible(self, state: State) -> tuple[int, ...]:
        """Return the records that a read_committed reader sees, in their order."""
        ...


@dataclass(frozen=True)
class Explored:
    """What a check found: an anomaly and the shortest way to it, or none in any state.

    If the anomaly is a stuck state, `moves` go on after it until a driver gets no further. `taken` counts the moves by
    actor, action and request, and shows that each of them happens. `complete` is False if the search gave up at its
    limit.
    """

    stage: str
    anomaly: str | None
    moves: tuple[Event, ...]
    states: int
    seconds: float
    complete: bool
    taken: Counter[tuple[str, ...]] = field(repr=False)

    @property
    def schedule(self) -> Schedule:
        return Schedule(self.stage, compact(self.moves), self.anomaly)


def with_sight(model: Model[State], move: Event, before: State, after: State) -> Event:
    """Add what a reader sees after a move, if the move has changed that."""
    sees = model.visible(after)
    return move if sees == model.visible(before) else move._replace(sees=sees)


def explore(
    model: Model[Any], limit: int | None = None, progress: Callable[[int], object] = lambda _: None
) -> Explored:
    """Explore the states of a model: until it finds an anomaly, has seen all states, or more than `limit` of them.

    It calls `progress` with the number of states every thousand of them.
    """
    began, first = time.perf_counter(), model.start()
    came_from: dict[Hashable, tuple[Hashable, Event] | None] = {first: None}
    queue, taken = deque([first]), Counter[tuple[str, ...]]()

    def checked(anomaly: str | None, state: Hashable, complete: bool) -> Explored:
        moves, end = [], state
        while step := came_from[state]:
            before, move = step
            moves.append(with_sight(model, move, before, state))
            state = before
        moves.reverse()
        for move, following in model.ending(end) if anomaly == "stuck" else ():
            moves.append(with_sight(model, move, end, following))
            end = following
        seconds = time.perf_counter() - began
        return Explored(model.name, anomaly, tuple(moves), len(came_from), seconds, complete, taken)

    with _no_collection():
        while queue:
            state = queue.popleft()
            if found := model.anomaly(state):
                return checked(found, state, complete=True)
            for move, following in model.moves(state):
                taken[move.actor.rstrip(" 0123456789"), move.action, move.request] += 1
                if following not in came_from:
                    came_from[following] = (state, move)
                    queue.append(following)
                    if len(came_from) % 1000 == 0:
                        progress(len(came_from))
            if limit and len(came_from) > limit:
                return checked(None, first, complete=False)
        return checked(None, first, complete=True)


@contextlib.contextmanager
def _no_collection() -> Iterator[None]:
    """Switch the garbage collector off: states are tuples without cycles, and collecting takes a fifth of the time."""
    collects = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collects:
            gc.enable()
