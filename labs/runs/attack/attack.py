"""An attack on a stage: the player's orders carried out on the real Kafka, or the model's own shortest schedule."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from labs.runs.attack.course import Course
from labs.runs.attack.orders import Order
from labs.runs.attack.possible import check_possible
from labs.runs.attack.watch import AttackOutcome, Watch
from labs.schedules.model.checker import explore
from labs.schedules.model.kafka import Stage
from labs.schedules.replay.bench import ReplayBench
from labs.schedules.replay.player import Player


def attack(
    stage: Stage, orders: Sequence[Order], bench: ReplayBench, progress: Callable[[int], object] = lambda _: None
) -> AttackOutcome:
    """Carry out the orders; the rest of the run is undisturbed, to its end. `progress` is told the steps taken so far.

    Raises ScheduleError for orders that can never be, CannotPlay for one whose moment does not come or at whose
    moment it cannot be carried out: one line each, which names the order.
    """
    check_possible(orders, stage)
    with Player(stage, bench, expires=any(order.verb == "time" for order in orders)) as player:
        watch = Watch(player, progress)
        return watch.outcome(Course(watch, orders).run())


def solve(stage: Stage, bench: ReplayBench, progress: Callable[[int], object] = lambda _: None) -> AttackOutcome:
    """Carry out what the model finds, and let an undisturbed driver finish. Raises CannotPlay."""
    found = explore(stage).schedule
    with Player(stage, bench, expires=any(event.action == "time out" for event in found.events)) as player:
        watch = Watch(player, progress)
        for event in found.events:
            watch.step(event)
        return watch.outcome(player.finish())
