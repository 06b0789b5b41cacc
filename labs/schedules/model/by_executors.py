"""The sink whose executors write: a batch in one transaction, each of its Kafka partitions by a task of the driver's.

The driver hands out its epoch and waits until each task has reported. If all rows are acknowledged it marks and
commits, and the commit gives it the next batch's epoch (KIP-890); if not, it aborts and ends.

Left out besides what `kafka` leaves out: a commit that reaches one partition before the other. A row that is taken
between the two is committed, as is one that comes just before the commit.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

from labs.schedules.model.broker import FENCED, carried_out, end, is_open, with_new_epoch
from labs.schedules.model.driver import ended, next_step, request_of
from labs.schedules.model.kafka import STEPS, Stage
from labs.schedules.model.state import NEVER, Driver, Request, State, spent, with_driver
from labs.schedules.model.tasks import DONE, TASKS, act, asks_again, handed_out, hears, reports
from labs.schedules.schedule import Event

Moves = Iterator[tuple[Event, State]]

PROGRAM = ("plan", "fence", "read marker", "hand out", "count", "marker", "commit", "note")
LUCK = ("deliver again", "lose the answer", "time out", "give up", "run again", "run the stage again")


@dataclass(frozen=True)
class ByExecutors(Stage):
    """`counts`: the driver looks at the reports before it commits. `retries`: a task that is run again does not refuse,
    and writes. `apart`: no two tasks write to one partition. `rows` are those of a batch. `strikes`: how many pieces of
    bad luck there are at most, of whatever kind."""

    program: tuple[str, ...] = PROGRAM
    keeps_epoch: bool = True
    epoch_by_commit: bool = True
    rows: int = 3
    luck: tuple[str, ...] = LUCK
    strikes: int = 1
    counts: bool = True
    retries: bool = False
    apart: bool = True

    steps: ClassVar = (*STEPS, "hand out", "count")

    def moves(self, state: State) -> Moves:
        for event, after in super().moves(state):
            luck = after.luck if len(self.luck) - len(after.luck) < self.strikes else ()
            yield event, _without_what_makes_no_difference(state, after._replace(luck=luck))

    def anomaly(self, state: State) -> str | None:
        """Name what is wrong: what may be in any sink, or that a record is missing and its batch is marked as done."""
        found = super().anomaly(state)
        lacks = state.marker and not set(self.visible(state)) >= set(range(state.marker.end))
        return "lost" if lacks and found != "doubled" else found

    def _executors(self, state: State) -> Moves:
        return act(self, state)

    def _network(self, state: State, request: Request) -> Moves:
        yield from super()._network(state, request)
        if "lose the answer" in state.luck and not request.copy:
            gone = spent(state._replace(net=state.net - {request}), "lose the answer")
            after, answer = self._carried_out(gone, request)
            yield request.carried("lose the answer", answer), self._asks_again(after, request)

    def _arrives(self, state: State, request: Request, action: str) -> tuple[Event, State]:
        state, answer = self._carried_out(state, request)
        if request.task and not request.copy:
            state = hears(state, request, answer)
        elif not request.copy and state.drivers[request.driver].alive:
            state = self._hears(state, request.driver, request, answer)
        return request.carried(action, answer), state

    def _asks_again(self, state: State, request: Request) -> State:
        if request.task:
            return asks_again(state, request)
        return with_driver(state, request.driver, state.drivers[request.driver]._replace(waiting=False))

    def _carried_out(self, state: State, request: Request) -> tuple[State, str]:
        """Let Kafka carry out a request. A commit that is asked for again is answered as before (EndTxn v5)."""
        if request.what == "commit" and request.epoch == state.committed == state.epoch - 1 and not is_open(state):
            return state, f"epoch {state.epoch}"
        if request.what == "abort":
            return (state, FENCED) if request.epoch != state.epoch else with_new_epoch(end(state, "aborted"))
        after, answer = carried_out(self, state, request)
        if request.what == "commit" and answer != FENCED:
            after = after._replace(committed=request.epoch)
        return after, answer

    def _driver(self, state: State, n: int, driver: Driver) -> Moves:
        if self.program[driver.step] == "fence" and self.keeps_epoch and driver.epoch != NEVER:
            driver = next_step(self, driver)
        step, name = self.program[driver.step], f"driver {n + 1}"
        if step == "hand out":
            event = Event(name, step, driver.batch, epoch=driver.epoch)
            yield event, with_driver(handed_out(state, n), n, next_step(self, driver))
        elif step == "count":
            yield from self._counts(state, n, driver)
        else:
            yield from super()._driver(state, n, driver)

    def _counts(self, state: State, n: int, driver: Driver) -> Moves:
        """Go on once each task has reported; abort, and end, where a row may not be acknowledged."""
        heard = reports(state, n)
        if len(heard) < TASKS:
            return
        state = state._replace(tasks=tuple(task for task in state.tasks if task not in heard))
        if not self.counts or all(task.report == DONE for task in heard):
            following = next_step(self, driver)._replace(computed=True)
            yield Event(f"driver {n + 1}", "count", driver.batch), with_driver(state, n, following)
        else:
            request = request_of(state, n, driver, "abort")
            yield request.sent, ended(state._replace(net=state.net | {request}), n, driver)


def _without_what_makes_no_difference(before: State, state: State) -> State:
    """Forget what was aborted, the order of partitions, and the numbers and requests of older epochs.

    A request is kept as long as its sender may hear the answer, or Kafka may carry it out.
    """
    log = tuple(sorted(record for record in state.log if record[2] != "aborted"))
    if state.epoch != before.epoch:
        state = state._replace(remembered=frozenset())
    alive = [driver.alive for driver in state.drivers]
    tasks = tuple(task for task in state.tasks if alive[task.driver] or task.epoch == state.epoch)
    net = frozenset(
        request
        for request in state.net
        if (alive[request.driver] and not request.copy)
        or request.what == "fence"
        or (request.what != "read marker" and request.epoch == state.epoch)
    )
    return state._replace(log=log, tasks=tasks, net=net)
