"""The explorable barrier: four rules, one and the same order of arrival, and time to be dragged back and forth.

    barrier_steps("counts on until the last")

Partition 1 is fast and partition 0 is slow. Every picture was drawn beforehand from what the rule did in
labs/schedules/barrier.py: nothing is decided in the browser, nothing is fetched, and no kernel is needed.
"""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

import anywidget
import traitlets

from labs.schedules.barrier import TRUTH, Delivery, Job, OnBarrier, Task, follow, name_of, restored, start
from labs.schedules.pictures.barrier import draw_barrier_job
from labs.schedules.publish import live_picture, live_pictures, style_of, with_still
from labs.schedules.svg import Drawing

HERE = Path(__file__).parent
STILL = "data-barrier"  # what a picture carries, so that a published page can make it live again


def stores_at_the_first(task: Task, channel: str) -> None:
    if not task.stored:
        task.snapshot()
        task.forward()


def counts_on_until_the_last(task: Task, channel: str) -> None:
    if task.arrived == task.channels:
        task.snapshot()
        task.forward()


def aligns(task: Task, channel: str) -> None:
    task.block(channel)
    if task.arrived == task.channels:
        task.snapshot()
        task.forward()
        task.unblock()


def records_what_is_under_way(task: Task, channel: str) -> None:
    if not task.stored:
        task.snapshot()
        task.forward()
        for other in task.channels - task.arrived:
            task.record(other)


RULES: dict[str, OnBarrier] = {
    "stores at the first": stores_at_the_first,
    "counts on until the last": counts_on_until_the_last,
    "aligns": aligns,
    "records what is under way": records_what_is_under_way,
}


def partition_1_is_fast(delivery: Delivery) -> int:
    """Return whose turn it is: what partition 1 sent comes first, then what the tasks send on, then the rest."""
    return {"partition 1": 0, "partition 0": 2}.get(delivery.source, 1)


@functools.cache
def barrier_data() -> dict[str, Any]:
    """Return {rule: {"pictures": [SVG], "words": [text], "wrong": [bool]}}: the start, and one for every delivery."""
    return {name: _course(follow(rule, partition_1_is_fast)) for name, rule in RULES.items()}


def _course(way: list[tuple[Delivery, Job]]) -> dict[str, Any]:
    jobs = [start(), *(job for _, job in way)]
    words = ["Nothing is delivered yet.", *(f"{str(delivery)[0].upper()}{str(delivery)[1:]}." for delivery, _ in way)]
    return {
        "pictures": [str(draw_barrier_job(job)) for job in jobs],
        "words": [f"{said} {_checkpoint(job)}" for said, job in zip(words, jobs, strict=True)],
        "wrong": [job.complete and restored(job) != TRUTH for job in jobs],
    }


def _checkpoint(job: Job) -> str:
    if not job.complete:
        return "The checkpoint is not complete."
    counts = restored(job)
    told = ", ".join(f"{name_of(name)} {counts[name]} of {TRUTH[name]}" for name in TRUTH)
    return f"The checkpoint is complete. After a crash, a restore and the rest of the log: {told}."


class BarrierSteps(anywidget.AnyWidget):
    """The widget. `rule` is one of RULES, `step` the number of deliveries."""

    _esm = HERE / "barrier_steps.js"
    _css = style_of(HERE / "barrier_steps.css")
    data = traitlets.Dict().tag(sync=True)
    rule = traitlets.Unicode().tag(sync=True)
    step = traitlets.Int().tag(sync=True)

    def still(self) -> Drawing:
        """Return the picture that is shown now."""
        shown = self.data[self.rule]
        drawing = Drawing(shown["pictures"][self.step])
        drawing.words = f"{self.rule}, after {self.step} deliveries: {shown['words'][self.step]}"
        return drawing

    def __repr__(self) -> str:
        return self.still().words

    def _repr_mimebundle_(self, **kwargs: Any) -> Any:
        html = live_picture(self.still(), STILL, {"rule": self.rule, "step": self.step})
        return with_still(super()._repr_mimebundle_(**kwargs), repr(self), html)


def barrier_steps(rule: str = "aligns", step: int | None = None) -> BarrierSteps:
    """Return the widget with a rule after a number of deliveries, or after all of them."""
    if rule not in RULES:
        raise ValueError(f"there is no rule {rule!r}; there are: {', '.join(RULES)}")
    data = barrier_data()
    last = len(data[rule]["pictures"]) - 1
    step = last if step is None else step
    if not 0 <= step <= last:
        raise ValueError(f"there is no step {step}; there are 0 to {last}")
    return BarrierSteps(data=data, rule=rule, step=step)


def script() -> str:
    """Return the script for a published page: module, style and data."""
    module = HERE.joinpath("barrier_steps.js").read_text(encoding="utf-8")
    return live_pictures(module, style_of(HERE / "barrier_steps.css"), STILL, {"data": barrier_data()})
