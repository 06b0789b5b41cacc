"""A consumer reads results from Kafka, writes them somewhere, and commits its offset.

These are two writes to two places, and a crash may come between them. A second consumer may start while the first one
only sleeps.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from labs.schedules.model.state import put
from labs.schedules.schedule import Event

OFFSET_FIRST = ("read", "commit the offset", "write")
OFFSET_LAST = ("read", "write", "commit the offset")
TOGETHER = ("read", "write with the offset")


class Consumer(NamedTuple):
    """A consumer at a step of a record. It is not alive once it has found that another one was first."""

    record: int = 0
    step: int = 0
    alive: bool = True


class State(NamedTuple):
    consumers: tuple[Consumer, ...] = (Consumer(),)
    noted: int = 0  # the next record to read
    written: tuple[int, ...] = ()


@dataclass(frozen=True)
class DownstreamStage:
    """`keyed`: a write replaces what was written under the same key, so that it may be repeated."""

    name: str
    program: tuple[str, ...]
    keyed: bool = False
    rows: int = 3
    drivers: int = 2
    batches: int = 1

    def start(self) -> State:
        return State()

    def moves(self, state: State) -> Iterator[tuple[Event, State]]:
        for n, consumer in enumerate(state.consumers):
            if consumer.alive and consumer.record < self.rows * self.batches:
                yield self._acts(state, n, consumer)
        if len(state.consumers) < self.drivers:
            fresh = (*state.consumers, Consumer(state.noted))
            number = len(fresh)
            yield (
                Event("supervisor", "start at record", row=state.noted, whose=f"consumer {number}"),
                state._replace(consumers=fresh),
            )

    def _acts(self, state: State, n: int, consumer: Consumer) -> tuple[Event, State]:
        actor, step, record = f"consumer {n + 1}", self.program[consumer.step], consumer.record
        following = consumer._replace(step=consumer.step + 1)
        if following.step == len(self.program):
            following = Consumer(record + 1)
        written = state.written if self.keyed and record in state.written else (*state.written, record)
        answer = ""
        if step == "write":
            state = state._replace(written=written)
        elif step == "commit the offset":
            state = state._replace(noted=record + 1)
        elif step == "write with the offset":
            if state.noted == record:  # both or neither: if another consumer was first, the transaction fails
                state = state._replace(noted=record + 1, written=written)
            else:
                answer, following = "another was first", consumer._replace(alive=False)
        consumers = put(state.consumers, n, following)
        return Event(actor, step, row=record, answer=answer), state._replace(consumers=consumers)

    def anomaly(self, state: State) -> str | None:
        """Name the anomaly: a record is written twice, or noted and never written."""
        if len(set(state.written)) < len(state.written):
            return "doubled"
        # An older consumer may sleep for ever. Then nobody writes the records before the newest consumer's position.
        return "lost" if set(range(state.consumers[-1].record)) - set(state.written) else None

    def ending(self, state: State) -> Iterator[tuple[Event, State]]:
        return iter(())

    def visible(self, state: State) -> tuple[int, ...]:
        return state.written
