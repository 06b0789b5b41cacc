"""A student's on_barrier as a table: the student's process calls the function, and the checker judges the table."""

from __future__ import annotations

from typing import Any

from labs.exercises.checker.scenario import NoTable
from labs.schedules.barrier import OnBarrier, Task, TaskState, barriers_together, explore_orders

SETS = ("arrived", "blocked", "recording")


def answers(function: OnBarrier) -> list[list[Any]]:
    """Return [task, channel, state before, state after] for every situation. Raises what the function raises."""
    table: dict[tuple[str, str, TaskState], TaskState] = {}

    def noted(task: Task, channel: str) -> object:
        before, answer = task.state, function(task, channel)
        table[task.name, channel, before] = task.state
        return answer

    barriers_together(noted)
    explore_orders(noted)
    return [[name, channel, _plain(before), _plain(after)] for (name, channel, before), after in table.items()]


def from_table(table: object) -> OnBarrier:
    """Return a function that does what the table says. Raises NoTable, as the function does for a missing situation."""
    try:
        known = {(name, channel, _state(before)): _state(after) for name, channel, before, after in table}  # type: ignore[attr-defined]
    except (TypeError, ValueError, AttributeError, LookupError) as error:
        raise NoTable("the run left no table of what on_barrier does") from error

    def on_barrier(task: Task, channel: str) -> None:
        try:
            task.state = known[task.name, channel, task.state]
        except KeyError:
            raise NoTable(f"the run does not say what on_barrier does with {task.state} and {channel}") from None

    return on_barrier


def _plain(state: TaskState) -> dict[str, Any]:
    return {**state._asdict(), **{name: sorted(getattr(state, name)) for name in SETS}}


def _state(plain: dict[str, Any]) -> TaskState:
    return TaskState(**{**plain, **{name: frozenset(plain[name]) for name in SETS}})
