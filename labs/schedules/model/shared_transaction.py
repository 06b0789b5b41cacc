"""One transaction for all tasks of a batch: one producer id and epoch, and a partition of its own for each task.

The driver gets an epoch and hands it out; each task sends its rows, numbered from 0, and reports when all are
acknowledged; when every task has, the driver commits. Spark may run a task again while its first attempt, a zombie,
still sends. The partition knows the numbers that it has: a row that comes again is acknowledged and not kept.

Left out: crashes of the driver, and a task whose attempts have different rows. `by_executors` has both.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from labs.schedules.model.tuples import put, without
from labs.schedules.schedule import Event


class Attempt(NamedTuple):
    """One run of a task for a batch: how many rows it has sent, and how many were acknowledged to it."""

    task: int
    batch: int
    number: int = 0  # 0 is the first attempt
    sent: int = 0
    acknowledged: int = 0
    alive: bool = True


class State(NamedTuple):
    attempts: tuple[Attempt, ...]
    batch: int = 0
    net: frozenset[tuple[int, int, bool]] = frozenset()  # (attempt, row, whether it is a copy)
    partitions: tuple[tuple[tuple[int, int], ...], ...] = ()  # the open transaction: (attempt's number, record)
    topic: tuple[int, ...] = ()
    luck: tuple[str, ...] = ("deliver again", "lose the answer", "run again")


@dataclass(frozen=True)
class SharedStage:
    """`counts`: the driver waits until every row is acknowledged, not only sent. `numbers_rows`: alike in each attempt,
    so that the partition knows a row again. `epoch_per_batch`: what a task of an older batch sends is refused."""

    name: str
    counts: bool = True
    numbers_rows: bool = True
    epoch_per_batch: bool = True
    batches: int = 2
    rows: int = 2
    drivers: int = 2  # that is, tasks

    def start(self) -> State:
        return State(self._fresh(0), partitions=((),) * self.drivers)

    def _fresh(self, batch: int) -> tuple[Attempt, ...]:
        return tuple(Attempt(task, batch) for task in range(self.drivers))

    def moves(self, state: State) -> Iterator[tuple[Event, State]]:
        for n, row, copy in state.net:
            gone = state._replace(net=state.net - {(n, row, copy)})
            yield self._arrives(gone, n, row, "deliver", heard=not copy)
            if not copy and "deliver again" in state.luck:
                kept = gone._replace(net=gone.net | {(n, row, True)})
                yield self._arrives(_spent(kept, "deliver again"), n, row, "deliver again", heard=True)
            if not copy and "lose the answer" in state.luck:
                yield self._arrives(_spent(gone, "lose the answer"), n, row, "lose the answer", heard=False)
        for n, attempt in enumerate(state.attempts):
            if attempt.alive and attempt.sent == attempt.acknowledged and attempt.sent < self.rows:
                sent = _with(state, n, attempt._replace(sent=attempt.sent + 1))
                yield self._event(attempt, attempt.sent), sent._replace(net=state.net | {(n, attempt.sent, False)})
            elif attempt.alive and attempt.sent > attempt.acknowledged and not any(each[0] == n for each in state.net):
                again = state.net | {(n, attempt.acknowledged, False)}  # nobody answers, so it asks again
                yield self._event(attempt, attempt.acknowledged), state._replace(net=again)
            if "run again" in state.luck and attempt.alive and attempt.batch == state.batch < self.batches:
                second = (*state.attempts, Attempt(attempt.task, attempt.batch, 1))
                event = Event("supervisor", "run again", attempt.batch, whose=f"{_actor(attempt)} again")
                yield event, _spent(state, "run again")._replace(attempts=second)
        if state.batch < self.batches and self._may_commit(state):
            yield self._commits(state)

    def _may_commit(self, state: State) -> bool:
        """Tell whether the driver believes that every task is done."""
        ready = {a.task for a in state.attempts if a.batch == state.batch and self._says_done(a)}
        return len(ready) == self.drivers

    def _says_done(self, attempt: Attempt) -> bool:
        return (attempt.acknowledged if self.counts else attempt.sent) == self.rows

    def _commits(self, state: State) -> tuple[Event, State]:
        topic = (*state.topic, *(record for partition in state.partitions for _, record in partition))
        batch = state.batch + 1
        following = state._replace(
            batch=batch,
            topic=topic,
            partitions=((),) * self.drivers,
            attempts=(*state.attempts, *(self._fresh(batch) if batch < self.batches else ())),
        )
        return Event("driver 1", "commit", state.batch, answer="ok"), following

    def _arrives(self, state: State, n: int, row: int, action: str, heard: bool) -> tuple[Event, State]:
        attempt = state.attempts[n]
        record = self._record(attempt, row)
        event = Event("network", action, attempt.batch, record, request="row", whose=_actor(attempt))
        if state.batch == self.batches or (self.epoch_per_batch and attempt.batch != state.batch):
            return event._replace(answer="fenced"), _with(state, n, attempt._replace(alive=False))
        held = state.partitions[attempt.task]
        known = [r for number, r in held if self.numbers_rows or number == attempt.number]
        old = attempt.batch < state.batch and self.numbers_rows  # committed, and known since then
        answer = "known already" if record in known or old else "ok"
        if answer == "ok":
            partitions = put(state.partitions, attempt.task, (*held, (attempt.number, record)))
            state = state._replace(partitions=partitions)
        if heard and attempt.alive and attempt.acknowledged == row:
            state = _with(state, n, attempt._replace(acknowledged=row + 1))
        return event._replace(answer=answer), state

    def _event(self, attempt: Attempt, row: int) -> Event:
        return Event(_actor(attempt), "row", attempt.batch, self._record(attempt, row))

    def _record(self, attempt: Attempt, row: int) -> int:
        return (attempt.batch * self.drivers + attempt.task) * self.rows + row

    def anomaly(self, state: State) -> str | None:
        """Name what is wrong: a record twice in what is committed, or none where its batch is committed."""
        if len(set(state.topic)) < len(state.topic):
            return "doubled"
        return "lost" if set(range(state.batch * self.drivers * self.rows)) - set(state.topic) else None

    def ending(self, state: State) -> Iterator[tuple[Event, State]]:
        return iter(())

    def visible(self, state: State) -> tuple[int, ...]:
        return state.topic


def _actor(attempt: Attempt) -> str:
    return f"task {attempt.task + 1}" + (" again" if attempt.number else "")


def _with(state: State, n: int, attempt: Attempt) -> State:
    return state._replace(attempts=put(state.attempts, n, attempt))


def _spent(state: State, what: str) -> State:
    return state._replace(luck=without(state.luck, what))
