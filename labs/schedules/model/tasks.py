"""What the tasks of a batch do: each sends its rows to a Kafka partition, numbered from 0, and reports to its driver.

A task sends again what nobody answers, may give up, and outlives its driver. Spark may run a task again, or all that
have not reported, with the rows in another order; of two attempts of a task, the first report counts. Where Kafka was
silent, other tasks write the batch once more, in another order too.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from labs.schedules.model.broker import FENCED
from labs.schedules.model.state import Request, State, Task, begin, spent
from labs.schedules.model.tuples import put
from labs.schedules.schedule import Event

if TYPE_CHECKING:
    from labs.schedules.model.by_executors import ByExecutors

TASKS = 2  # of a batch
DONE, SILENT, FAILED = "done", "silent", "failed"


def handed_out(stage: ByExecutors, state: State, n: int) -> State:
    """Let a driver's tasks begin. One without rows has nothing to do."""
    driver = state.drivers[n]
    first = (n + stage.drivers if driver.again else n) * TASKS
    tasks = [Task(n, first + each, driver.batch, driver.epoch, repeats=driver.again) for each in range(TASKS)]
    tasks = [task if _rows(state, task) else task._replace(report=DONE) for task in tasks]
    return state._replace(tasks=(*state.tasks, *tasks))


def reports(state: State, n: int) -> list[Task]:
    """Return the attempts that have reported to a driver."""
    return [task for task in state.tasks if task.driver == n and task.report]


def act(stage: ByExecutors, state: State) -> Iterator[tuple[Event, State]]:
    """Yield what each task can do, and what Spark can do about it."""
    running = [task for task in state.tasks if not task.report]
    for task in running:
        if not task.waiting:
            request = _request(stage, state, task)
            sent = _with(state, task, task._replace(waiting=True))
            yield request.sent, sent._replace(net=state.net | {request})
        elif "give up" in state.luck:
            yield Event(task.name, "give up", task.batch), _reported(spent(state, "give up"), task, SILENT)
    again = [task for task in running if _may_run_again(state, task)]
    for task in again if "run again" in state.luck else ():
        after, answer = _run_again(stage, spent(state, "run again"), task)
        yield Event("supervisor", "run again", task.batch, answer=answer, whose=f"{task.name} again"), after
    for n in {task.driver for task in again} if "run the stage again" in state.luck else ():
        after = spent(state, "run the stage again")
        for task in again:
            if task.driver == n:
                after, answer = _run_again(stage, after, task)
        yield (
            Event("supervisor", "run the stage again", state.drivers[n].batch, answer=answer, whose=f"driver {n + 1}"),
            after,
        )


def hears(state: State, request: Request, answer: str) -> State:
    """Let the task that sent a record hear the answer, if it still waits for one."""
    for task in state.tasks:
        if task.name == request.task and task.batch == request.batch and task.waiting and not task.report:
            if answer == FENCED:
                return _reported(state, task, FAILED)
            heard = task._replace(acknowledged=task.acknowledged + 1, waiting=False)
            if heard.acknowledged == len(_rows(state, task)):
                return _reported(state, task, DONE)
            return _with(state, task, heard)
    return state


def asks_again(state: State, request: Request) -> State:
    """Let a task that hears nothing send its record again."""
    for task in state.tasks:
        if task.name == request.task and task.batch == request.batch and not task.report:
            return _with(state, task, task._replace(waiting=False))
    return state


def _reported(state: State, task: Task, report: str) -> State:
    """Let a task end with a report, or without one if nobody waits for it."""
    driver = state.drivers[task.driver]
    heard = {each.number for each in reports(state, task.driver)}
    if not driver.alive or driver.batch != task.batch or task.number in heard:
        return state._replace(tasks=tuple(each for each in state.tasks if each != task))
    return _with(state, task, task._replace(report=report))


def _may_run_again(state: State, task: Task) -> bool:
    driver = state.drivers[task.driver]
    others = [each for each in state.tasks if each.number == task.number and each.batch == task.batch and each != task]
    return driver.alive and driver.batch == task.batch and not others


def _run_again(stage: ByExecutors, state: State, task: Task) -> tuple[State, str]:
    second = task._replace(again=True, acknowledged=0, waiting=False)
    both = state._replace(tasks=(*state.tasks, second))
    return (both, "") if stage.retries else (_reported(both, second, FAILED), "it refuses")


def _request(stage: ByExecutors, state: State, task: Task) -> Request:
    row, partition = _rows(state, task)[task.acknowledged], task.number % TASKS if stage.apart else 0
    number = (task.epoch * 10 + task.batch) * 100 + partition * 10 + task.acknowledged  # anew under each epoch
    return Request(task.driver, "row", task.batch, row, task.epoch, number, state.planned[task.batch], task=task.name)


def _rows(state: State, task: Task) -> range:
    """Return the records of a task: every other one of the batch; in another order if they are computed again."""
    rows = range(begin(state, task.batch), state.planned[task.batch])[task.number % TASKS :: TASKS]
    return rows[::-1] if task.again != task.repeats else rows


def _with(state: State, old: Task, new: Task) -> State:
    return state._replace(tasks=put(state.tasks, state.tasks.index(old), new))
