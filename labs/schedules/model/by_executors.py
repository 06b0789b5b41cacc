"""The sink whose executors write: a batch in one transaction, each of its Kafka partitions by a task of the driver's.

The driver hands out its epoch and waits until each task has reported. If all rows are acknowledged it marks and
commits, and the commit gives it the next batch's epoch (KIP-890). Where a task gave up because Kafka was silent, the
driver aborts, waits for the epoch that this gives, and hands out the batch again; else it aborts and ends.

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
from labs.schedules.model.reduction import without_what_makes_no_difference
from labs.schedules.model.state import NEVER, Driver, Request, State, spent, with_driver
from labs.schedules.model.tasks import DONE, SILENT, TASKS, act, asks_again, handed_out, hears, reports
from labs.schedules.schedule import Event

Moves = Iterator[tuple[Event, State]]

PROGRAM = ("plan", "fence", "read marker", "hand out", "count", "marker", "commit", "note")
LUCK = ("deliver again", "lose the answer", "time out", "give up", "run again", "run the stage again")


@dataclass(frozen=True)
class ByExecutors(Stage):
    """`counts`: the driver looks at the reports before it commits. `retries`: a task that is run again does not refuse,
    and writes. `apart`: no two tasks write to one partition. `aborts_first`: what Kafka was silent for is aborted
    before it is written again; `epoch_by_abort`: under the next epoch. `rows` are those of a batch. `strikes`: how
    many pieces of bad luck there are at most, of whatever kind."""

    program: tuple[str, ...] = PROGRAM
    keeps_epoch: bool = True
    epoch_by_commit: bool = True
    rows: int = 3
    luck: tuple[str, ...] = LUCK
    strikes: int = 1
    counts: bool = True
    retries: bool = False
    apart: bool = True
    aborts_first: bool = True
    epoch_by_abort: bool = True

    steps: ClassVar = (*STEPS, "hand out", "count")

    def moves(self, state: State) -> Moves:
        for event, after in super().moves(state):
            luck = after.luck if len(self.luck) - len(after.luck) < self.strikes else ()
            if event.action == "time out":
                after = after._replace(aborted=state.epoch)
            yield event, without_what_makes_no_difference(state, after._replace(luck=luck))

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
        """Let Kafka carry out a request. An end that is asked for again is answered as before (EndTxn v5).

        So is an abort after one of Kafka's own accord.
        """
        last = {"commit": state.committed, "abort": state.aborted}.get(request.what, NEVER)
        if NEVER != last == request.epoch == state.epoch - 1 and not is_open(state):
            return state, f"epoch {state.epoch}"
        if request.what == "abort":
            return (state, FENCED) if request.epoch != state.epoch else self._aborted(state)
        after, answer = carried_out(self, state, request)
        if request.what == "commit" and answer != FENCED:
            after = after._replace(committed=request.epoch)
        return after, answer

    def _aborted(self, state: State) -> tuple[State, str]:
        after = end(state, "aborted")._replace(aborted=state.epoch)
        return with_new_epoch(after) if self.epoch_by_abort else (after, f"epoch {state.epoch}")

    def _hears(self, state: State, n: int, request: Request, answer: str) -> State:
        """Let a driver go on after an answer; after an abort, write the batch again."""
        driver = state.drivers[n]
        if request.what != "abort" or answer == FENCED or not driver.waiting:
            return super()._hears(state, n, request, answer)
        return self._to_be_written_again(state, n, driver._replace(epoch=state.epoch, waiting=False))

    def _to_be_written_again(self, state: State, n: int, driver: Driver) -> State:
        driver = driver._replace(step=self.program.index("hand out"), again=True)
        return with_driver(_without_reports(state, n), n, driver)

    def _driver(self, state: State, n: int, driver: Driver) -> Moves:
        if self.program[driver.step] == "fence" and self.keeps_epoch and driver.epoch != NEVER:
            driver = next_step(self, driver)
        step, name = self.program[driver.step], f"driver {n + 1}"
        if step == "hand out":
            event = Event(name, step, driver.batch, epoch=driver.epoch)
            yield event, with_driver(handed_out(self, state, n), n, next_step(self, driver))
        elif step == "count":
            yield from self._counts(state, n, driver)
        else:
            yield from super()._driver(state, n, driver)

    def _counts(self, state: State, n: int, driver: Driver) -> Moves:
        """Go on once each task has reported; abort where a row may not be acknowledged, and end or begin again."""
        heard = {task.report for task in reports(state, n)}
        if len(reports(state, n)) < TASKS:
            return
        if not self.counts or heard == {DONE}:
            following = next_step(self, driver)._replace(computed=True)
            counted = with_driver(_without_reports(state, n), n, following)
            yield Event(f"driver {n + 1}", "count", driver.batch), counted
        elif SILENT in heard and not self.aborts_first:
            again = self._to_be_written_again(state, n, driver)
            yield from self._driver(again, n, again.drivers[n])
        else:
            request = request_of(state, n, driver, "abort")
            sent = state._replace(net=state.net | {request})
            if SILENT in heard:
                yield request.sent, with_driver(sent, n, driver._replace(waiting=True))
            else:
                yield request.sent, ended(_without_reports(sent, n), n, driver)


def _without_reports(state: State, n: int) -> State:
    heard = reports(state, n)
    return state._replace(tasks=tuple(task for task in state.tasks if task not in heard))
