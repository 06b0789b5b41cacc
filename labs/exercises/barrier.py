"""Exercise 11: what a task does with a barrier.

    def on_barrier(task, channel): ...

A job reads two partitions. Tasks "a" and "b" count one key each, and send on each record that they count; task "total"
counts those. A barrier has come to `task` through `channel`: the records that came through it before belong to the
checkpoint, those that come after do not.

    task.name, task.channels     the task, and the names of its two channels
    task.arrived                 the channels whose barrier has come, this one included
    task.stored                  tells whether the task has stored its count
    task.snapshot()              store the count as it is now
    task.forward()               send the barrier on, once; "total" acknowledges the checkpoint instead
    task.block(channel)          deliver nothing more from a channel: its records wait there
    task.unblock()               deliver from all channels again
    task.record(channel)         store, beside the count, the records of a channel until its barrier comes

Whatever the order of delivery: after a crash and a restore from the checkpoint, each task must have the right count.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from labs.exercises.checker.barrier_table import from_table
from labs.exercises.checker.rounds import History, ended_badly
from labs.exercises.checker.scenario import DOUBLED, LOST, Exercise, Finding, Grade, Lab, NoTable, Scenario
from labs.schedules.barrier import STUCK, TRUTH, Explored, OnBarrier, Order, barriers_together, explore_orders, name_of


def with_orders(tried: Callable[[OnBarrier], Explored]) -> Callable[[Lab, Scenario], Finding]:
    """Return a judge that explores with `tried`; the student's code runs once, and the table serves all orders."""

    def judge(lab: Lab, scenario: Scenario) -> Finding:
        began = time.time()
        if "run" not in lab.kept:
            lab.kept["run"] = lab.process.run("on_barrier", {}, began)
        run = lab.kept["run"]
        if not run.well:
            return ended_badly(scenario, History([run]), began)
        [answer] = [event for event in run.events if event["kind"] == "answer"]
        try:
            explored = tried(from_table(answer.get("table")))
        except NoTable as error:
            return scenario.finding(began, grade=Grade.UNKNOWN, detail=str(error))
        if order := explored.shortest:
            steps = f"after {len(order.deliveries)} deliveries"
            if tried is explore_orders:
                steps += ", the fewest in which it goes wrong"
            return scenario.finding(began, grade=Grade.FAILED, detail=steps, **as_finding(order))
        return scenario.finding(began, grade=Grade.PASSED, detail=f"none of {explored.states:,} states is wrong")

    return judge


def as_finding(order: Order) -> dict[str, Any]:
    """Return the fields of a finding that show an order in which it goes wrong: in numbers, in words, as a picture."""
    from labs.schedules.barrier_steps import draw_barriers  # loads widgets, which a check that passes does not need

    off = {name: count - TRUTH[name] for name, count in order.counts.items()}
    wrong = [
        f"{name_of(name)} counts {order.counts[name]} and there are {TRUTH[name]}" for name, by in off.items() if by
    ]
    return {
        "symptom": order.anomaly,
        "lost": max(0, *(-by for by in off.values())) if off else 0,
        "doubled": max(0, *off.values()) if off else 0,
        "examples": wrong,
        "timeline": [(f"{n}.", str(each)) for n, each in enumerate(order.deliveries, 1)],
        "picture": draw_barriers(order),
    }


EXERCISE = Exercise(
    name="barrier",
    task="When a task stores its count, so that it fits the position in every order of delivery.",
    entry="labs.exercises.checker.calls:with_barriers",
    seconds=5,
    scenarios=(
        Scenario(
            "the barriers come together",
            "All that is in front of the barriers is counted, then they come; crash, restore.",
            with_orders(barriers_together),
            smoke=True,
        ),
        Scenario(
            "every order",
            "Every order in which records and barriers can be delivered; crash, restore.",
            with_orders(explore_orders),
        ),
    ),
    hints={
        LOST: "A record came before its barrier and is not in the stored count: the positions are behind it, so nobody "
        "reads it again. For which channel had the barrier not come when the task stored?",
        DOUBLED: "A record came behind its barrier and is in the stored count all the same: it is read again. What may "
        "a task take from a channel whose barrier has come, while it waits for the other one?",
        STUCK: "In the end records still wait, or a task has not stored its count, or has not sent the barrier on. "
        "Where are the channels unblocked, and does each of the three tasks store and forward?",
        f"{STUCK}/the barriers come together": "This happens in any order: does each task store its count, send the "
        "barrier on, and unblock the channels that it blocked?",
        "crashed: BarrierError": "Call snapshot() and forward() only once, and name only channels that the task has. "
        "The task itself has all that you need to remember.",
        "crashed: AttributeError": "A task has only the names that the exercise lists: a restore would not bring back "
        "anything else that you keep in it.",
    },
    own_kafka=True,
    counted="records, at the task whose count is the furthest from right",
)
