"""Orders that can never be, found before anything is started: a batch, a row, a driver or a step that there is not."""

from __future__ import annotations

from collections.abc import Sequence

from labs.runs.attack.orders import STEPS, Moment, Order
from labs.schedules.model.kafka import Stage
from labs.schedules.schedule import ScheduleError

STARTS_ANOTHER = ("crash", "freeze", "hold", "lose", "restore", "time", "wake", "repeat")


def check_possible(orders: Sequence[Order], stage: Stage) -> None:
    """Raise ScheduleError, in one line that names the order, for the first that no run of the stage could carry out."""
    starts = sum(order.verb in STARTS_ANOTHER for order in orders)
    restored = any(order.verb == "restore" for order in orders)
    for order in orders:
        drivers = [order.driver, *(moment.driver for moment in (order.request, order.at) if moment)]
        why = _impossible_driver([each for each in drivers if each is not None], 1 + starts)
        for moment in (order.request, order.at):
            if moment and moment.step:
                why = why or _impossible_step(moment, stage, rows=stage.rows + restored)
        if why is None and order.verb == "time" and not stage.transactional:
            why = "this sink has no transactions that could time out"
        elif why is None and order.verb == "time" and any(each.verb in ("hold", "lose") for each in orders):
            why = "with so short a timeout a client sends again what is held or lost; use the one or the other"
        elif why is None and order.verb == "expire" and "forget the marker" not in stage.luck:
            why = "no marker of this sink ever expires"
        if why:
            raise ScheduleError(f"{order} cannot be carried out: {why}")


def _impossible_driver(drivers: Sequence[int], most: int) -> str | None:
    if 0 in drivers:
        return "drivers count from 1"
    if max(drivers, default=1) > most:
        return f"nothing in these orders could make the supervisor start driver {max(drivers)}"
    return None


def _impossible_step(moment: Moment, stage: Stage, rows: int) -> str | None:
    step = "rows" if moment.step == "row" else moment.step
    name = next(noun for noun, action in STEPS.items() if action == moment.step)
    if step not in stage.program:
        return f"no driver of this sink ever comes to a step {name!r}"
    if moment.batch >= stage.batches:
        return f"there is no batch {moment.batch}: the batches are {_listed(stage.batches)}"
    if moment.row is not None and moment.row >= rows:
        return f"there is no row {moment.row}: the rows of a batch are {_listed(rows)}"
    if moment.nth > 1 and stage.program.count("commit") < 2:
        return "this sink commits a batch only once"
    return None


def _listed(count: int) -> str:
    return " and ".join([", ".join(map(str, range(count - 1))), str(count - 1)]) if count > 1 else "0"
