"""The sink whose executors write: a batch is one transaction, and a task writes each of its Kafka partitions.

The step "rows" hands the batch out with the driver's epoch, and counts the tasks' reports. If all rows are acknowledged
the protocol goes on to its commit, which gives the next batch's epoch (KIP-890). If a task gave up because Kafka was
silent, the answer is False: the protocol aborts, waits for the epoch that the abort gives, and has the batch written
again. If Kafka refused a task, the driver aborts and ends.

A task sends its rows to a Kafka partition, with sequence numbers from 0, and reports to its driver. It repeats a
request that gets no answer, may give up, and outlives its driver. Spark may run a task again, or all tasks that have
not reported, with the rows in another order; of two attempts of a task, the first report counts. If Kafka was silent,
other tasks write the batch once more, in another order too.

Limitations: those of `drivers_and_network`; and a commit reaches all partitions at once. If it reached one before the
other, a row that Kafka takes in between would be committed, as is a row that arrives just before the commit.
"""

from __future__ import annotations

from dataclasses import dataclass

from labs.schedules.model.drivers_and_network import Moves, Stage
from labs.schedules.model.state import (
    FENCED,
    NEVER,
    Driver,
    Request,
    State,
    Task,
    begin,
    end,
    ended,
    is_open,
    put,
    spent,
    with_driver,
    with_new_epoch,
)
from labs.schedules.schedule import Event

FAULTS = ("deliver again", "lose the answer", "time out", "give up", "run again", "run the stage again")
TASKS = 2  # of a batch
DONE, SILENT, FAILED = "done", "silent", "failed"


@dataclass(frozen=True)
class ByExecutors(Stage):
    """The stage whose executors write.

    `retries`: a task that Spark runs again writes instead of refusing. `apart`: no two tasks write to one partition.
    `epoch_by_abort`: an abort gives a new epoch, too. `strikes`: how many faults of any kind there are at most.
    """

    epoch_by_commit: bool = True
    rows: int = 3
    faults: tuple[str, ...] = FAULTS
    strikes: int = 1
    retries: bool = False
    apart: bool = True
    epoch_by_abort: bool = True

    @property
    def asks_ahead(self) -> bool:
        return False

    def moves(self, state: State) -> Moves:
        for event, after in super().moves(state):
            faults = after.faults if len(self.faults) - len(after.faults) < self.strikes else ()
            if event.action == "time out":
                after = after._replace(aborted=state.epoch)
            yield event, without_what_makes_no_difference(state, after._replace(faults=faults))

    def anomaly(self, state: State) -> str | None:
        """Name the anomaly: that of any stage, or a record is missing and its batch is marked as published."""
        found = super().anomaly(state)
        lacks = state.marker and not set(self.visible(state)) >= set(range(state.marker.end))
        return "lost" if lacks and found != "doubled" else found

    # The network and Kafka

    def _network(self, state: State, request: Request) -> Moves:
        yield from super()._network(state, request)
        if "lose the answer" in state.faults and not request.copy:
            gone = spent(state._replace(net=state.net - {request}), "lose the answer")
            after, answer = self._carried_out(gone, request)
            yield request.carried("lose the answer", answer), self._asks_again(after, request)

    def _arrives(self, state: State, request: Request, action: str) -> tuple[Event, State]:
        state, answer = self._carried_out(state, request)
        if request.task and not request.copy:
            state = _task_hears(state, request, answer)
        elif not request.copy and state.drivers[request.driver].alive:
            state = self.hears(state, request.driver, request, answer)
        return request.carried(action, answer), state

    def _asks_again(self, state: State, request: Request) -> State:
        if request.task:
            return _task_asks_again(state, request)
        return with_driver(state, request.driver, state.drivers[request.driver]._replace(waiting=False))

    def _carried_out(self, state: State, request: Request) -> tuple[State, str]:
        """Let Kafka carry out a request. To a repeated commit or abort it gives the same answer again (EndTxn v5).

        If Kafka has aborted a transaction that timed out, an abort by its driver gets that answer, too.
        """
        last = {"commit": state.committed, "abort": state.aborted}.get(request.what, NEVER)
        if NEVER != last == request.epoch == state.epoch - 1 and not is_open(state):
            return state, f"epoch {state.epoch}"
        if request.what == "abort":
            return (state, FENCED) if request.epoch != state.epoch else self._aborted(state)
        after, answer = self.kafka.carried_out(state, request)
        if request.what == "commit" and answer != FENCED:
            after = after._replace(committed=request.epoch)
        return after, answer

    def _aborted(self, state: State) -> tuple[State, str]:
        after = end(state, "aborted")._replace(aborted=state.epoch)
        return with_new_epoch(after) if self.epoch_by_abort else (after, f"epoch {state.epoch}")

    # The driver

    def _driver(self, state: State, n: int, driver: Driver) -> Moves:
        if self.wanted(state, driver) != "rows":
            yield from super()._driver(state, n, driver)
        elif not driver.row:
            event = Event(f"driver {n + 1}", "hand out", driver.batch, epoch=driver.epoch)
            yield event, with_driver(self._handed_out(state, n), n, driver._replace(row=1))
        elif len(reports(state, n)) == TASKS:
            yield from self._counts(state, n, driver._replace(row=0))

    def _counts(self, state: State, n: int, driver: Driver) -> Moves:
        """Answer the protocol once each task has reported; if Kafka has refused a row, abort and end."""
        heard, without = {task.report for task in reports(state, n)}, _without_reports(state, n)
        if SILENT in heard:  # the reports stay until the batch is handed out again, so that later ones do not count
            after = self.goes_on(state, n, driver._replace(again=True), False)
            yield from self._driver(after, n, after.drivers[n])
        elif FAILED in heard:
            request = self.request_of(state, n, driver, "abort")
            yield request.sent, ended(without._replace(net=state.net | {request}), n, driver)
        else:
            counted = self.goes_on(without, n, driver._replace(computed=True), True)
            yield Event(f"driver {n + 1}", "count", driver.batch), counted

    def _handed_out(self, state: State, n: int) -> State:
        """Let a driver's tasks begin. A task without rows has reported at once."""
        driver = state.drivers[n]
        first = (n + self.drivers if driver.again else n) * TASKS
        tasks = [Task(n, first + each, driver.batch, driver.epoch, repeats=driver.again) for each in range(TASKS)]
        tasks = [task if _rows(state, task) else task._replace(report=DONE) for task in tasks]
        return state._replace(tasks=(*_without_reports(state, n).tasks, *tasks))

    # The tasks

    def _executors(self, state: State) -> Moves:
        """Yield what each task can do, and which tasks Spark can run again."""
        running = [task for task in state.tasks if not task.report]
        for task in running:
            if not task.waiting:
                request = self._request(state, task)
                sent = _with(state, task, task._replace(waiting=True))
                yield request.sent, sent._replace(net=state.net | {request})
            elif "give up" in state.faults:
                yield Event(task.name, "give up", task.batch), _reported(spent(state, "give up"), task, SILENT)
        again = [task for task in running if _may_run_again(state, task)]
        for task in again if "run again" in state.faults else ():
            after, answer = self._run_again(spent(state, "run again"), task)
            yield Event("supervisor", "run again", task.batch, answer=answer, whose=f"{task.name} again"), after
        for n in {task.driver for task in again} if "run the stage again" in state.faults else ():
            after = spent(state, "run the stage again")
            for task in again:
                if task.driver == n:
                    after, answer = self._run_again(after, task)
            batch, whose = state.drivers[n].batch, f"driver {n + 1}"
            yield Event("supervisor", "run the stage again", batch, answer=answer, whose=whose), after

    def _run_again(self, state: State, task: Task) -> tuple[State, str]:
        second = task._replace(again=True, acknowledged=0, waiting=False)
        both = state._replace(tasks=(*state.tasks, second))
        return (both, "") if self.retries else (_reported(both, second, FAILED), "it refuses")

    def _request(self, state: State, task: Task) -> Request:
        row, partition = _rows(state, task)[task.acknowledged], task.number % TASKS if self.apart else 0
        # A producer numbers the records of a partition, and begins again at 0 under each epoch.
        number = (task.epoch * 10 + task.batch) * 100 + partition * 10 + task.acknowledged
        return Request(task.driver, "row", task.batch, row, task.epoch, number, task=task.name)


def reports(state: State, n: int) -> list[Task]:
    """Return the attempts that have reported to a driver."""
    return [task for task in state.tasks if task.driver == n and task.report]


def _without_reports(state: State, n: int) -> State:
    heard = reports(state, n)
    return state._replace(tasks=tuple(task for task in state.tasks if task not in heard))


def _task_hears(state: State, request: Request, answer: str) -> State:
    """Tell the task that sent a record the answer, if it still waits for one."""
    for task in state.tasks:
        if task.name == request.task and task.batch == request.batch and task.waiting and not task.report:
            if answer == FENCED:
                return _reported(state, task, FAILED)
            heard = task._replace(acknowledged=task.acknowledged + 1, waiting=False)
            if heard.acknowledged == len(_rows(state, task)):
                return _reported(state, task, DONE)
            return _with(state, task, heard)
    return state


def _task_asks_again(state: State, request: Request) -> State:
    """Let a task that got no answer send its record again."""
    for task in state.tasks:
        if task.name == request.task and task.batch == request.batch and not task.report:
            return _with(state, task, task._replace(waiting=False))
    return state


def _reported(state: State, task: Task, report: str) -> State:
    """Let a task end with a report, or without one if its driver does not wait for it."""
    driver = state.drivers[task.driver]
    heard = {each.number for each in reports(state, task.driver)}
    if not driver.alive or driver.batch != task.batch or task.number in heard:
        return state._replace(tasks=tuple(each for each in state.tasks if each != task))
    return _with(state, task, task._replace(report=report))


def _may_run_again(state: State, task: Task) -> bool:
    driver = state.drivers[task.driver]
    others = [each for each in state.tasks if each.number == task.number and each.batch == task.batch and each != task]
    return driver.alive and driver.batch == task.batch and not others


def _rows(state: State, task: Task) -> range:
    """Return a task's records: every other record of the batch, in another order if they are computed again."""
    rows = range(begin(state, task.batch), state.planned[task.batch])[task.number % TASKS :: TASKS]
    return rows[::-1] if task.again != task.repeats else rows


def _with(state: State, old: Task, new: Task) -> State:
    return state._replace(tasks=put(state.tasks, state.tasks.index(old), new))


def without_what_makes_no_difference(before: State, state: State) -> State:
    """Remove from a state what cannot change anything any more, so that there are fewer states.

    That is: aborted records, the order of the records, the sequence numbers and the requests of older epochs, and the
    progress of dead drivers. A request is kept as long as its sender may hear the answer, or Kafka may carry it out.
    An abort is kept as long as a driver may ask for it again.
    """
    if state.epoch != before.epoch:
        state = state._replace(remembered=frozenset())
    if state.aborted != NEVER and state.aborted not in [driver.epoch for driver in state.drivers if driver.alive]:
        state = state._replace(aborted=NEVER)
    # Most fields are the same objects as before; in these, nothing is left to remove.
    log, tasks, net, drivers = state.log, state.tasks, state.net, state.drivers
    if log is not before.log:
        log = tuple(sorted(record for record in log if record[2] != "aborted"))
    if drivers is before.drivers and state.epoch == before.epoch and tasks is before.tasks and net is before.net:
        return state._replace(log=log)
    alive = [driver.alive for driver in drivers]
    if not all(alive):
        drivers = tuple(driver if driver.alive else Driver(alive=False) for driver in drivers)
    tasks = tuple(task for task in tasks if alive[task.driver] or task.epoch == state.epoch)
    net = frozenset(
        request
        for request in net
        if (alive[request.driver] and not request.copy)
        or request.what == "fence"
        or (request.what != "read marker" and request.epoch == state.epoch)
    )
    return state._replace(log=log, tasks=tasks, net=net, drivers=drivers)
