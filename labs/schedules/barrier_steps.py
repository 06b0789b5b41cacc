"""Pictures of barriers: the job, one order of deliveries, and the explorable barrier.

    barrier_steps("counts on until the last")

The explorable has four rules, one order of arrival, and a slider for the time. Partition 1 is fast and partition 0 is
slow. Every picture was drawn beforehand from what the rule did in labs/schedules/barrier.py: the browser decides
nothing, fetches nothing, and needs no kernel.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import anywidget
import traitlets

from labs.schedules.barrier import (
    BARRIER,
    LOG,
    SOURCES,
    TASKS,
    TOTAL,
    TRUTH,
    Delivery,
    Job,
    OnBarrier,
    Order,
    Task,
    follow,
    name_of,
    restored,
    start,
)
from labs.schedules.publish import live_picture, live_pictures, style_of, with_still
from labs.schedules.svg import (
    BLUE,
    DARK_GREEN,
    DARK_RED,
    FAINT,
    GREEN,
    GREY,
    INK,
    ORANGE,
    PALE,
    PALE_BLUE,
    Drawing,
    arrow,
    box,
    document,
    line,
    text,
)

WIDTH = 940  # pixels

# The job

JOB = (
    "The job. Partition 0 sends a, a, the barrier, b; partition 1 sends b, a, the barrier, a, a. Each record goes to "
    "the task that counts its key, a or b, and each barrier goes to both. For each record that they count, both tasks "
    "send one on to total."
)
PLACES = {
    "partition 0": (10, 60),
    "partition 1": (10, 190),
    "task a": (420, 60),
    "task b": (420, 190),
    TOTAL: (790, 125),
}
# Where the arrow of a channel begins and ends. The oldest element is nearest to the end.
LANES = {
    ("partition 0", "a"): ((142, 78), (417, 78)),
    ("partition 0", "b"): ((142, 108), (417, 205)),
    ("partition 1", "a"): ((142, 205), (417, 108)),
    ("partition 1", "b"): ((142, 236), (417, 236)),
    ("task a", TOTAL): ((553, 91), (787, 145)),
    ("task b", TOTAL): ((553, 221), (787, 170)),
}


def draw_barrier_job(job: Job | None = None) -> Drawing:
    """Return the job with what is in its channels: at the start, or at another moment."""
    job = job or start()
    return document(WIDTH, 300, "A barrier in each channel", _job_words(job), _job(job), size=14)


def _job_words(job: Job) -> str:
    channels = [
        f"from {each.source} to {name_of(each.task)}: {', '.join(each.waiting)}".replace(BARRIER, "the barrier")
        for each in job.channels
        if each.waiting
    ]
    counts = [
        f"{name_of(name)} counts {state.counted}"
        + ("" if state.snapshot is None else f" and has stored {state.snapshot}")
        for name, state in zip(TASKS, job.tasks, strict=True)
    ]
    on_its_way = "; ".join(channels) or "nothing"
    return f"{JOB if job == start() else ''} On its way: {on_its_way}. {'; '.join(counts)}.".strip()


def _job(job: Job) -> Iterator[str]:
    yield text(10, 26, "The records and barriers that are on their way", size=17, weight="bold")
    channels = {(each.source, each.task): each.waiting for each in job.channels}
    for (source, task), ((x1, y1), (x2, y2)) in LANES.items():
        yield line(x1, y1, x2, y2, "#7FB8D8", width=1.5)
        for n, element in enumerate(channels[source, task]):
            at = 1 - (30 + 44 * n) / max(abs(x2 - x1), 1)
            yield from _element(round(x1 + (x2 - x1) * at), round(y1 + (y2 - y1) * at), element)
        if source in job.task(task).blocked:
            yield line(x2 - 6, y2 - 12, x2 - 6, y2 + 12, INK, width=5)
    states = {name_of(name): state for name, state in zip(TASKS, job.tasks, strict=True)}
    for name, (x, y) in PLACES.items():
        middle, is_source = x + 65, name in SOURCES
        yield box(x, y, 130, 62, fill=PALE_BLUE if is_source else PALE, edge=BLUE if is_source else INK)
        yield text(middle, y + 24, name, anchor="middle", size=15, weight="bold")
        below = " ".join(LOG[SOURCES.index(name)]) if is_source else f"counts {states[name].counted}"
        if not is_source and states[name].snapshot is not None:
            in_flight = states[name].in_flight
            stored = f"stored {states[name].snapshot}" + (f" + {in_flight} in flight" if in_flight else "")
            yield text(middle, y + 82, stored, anchor="middle", weight="bold", colour=DARK_GREEN)
        yield text(middle, y + 46, below, anchor="middle", size=14)


def _element(x: int, y: int, element: str) -> Iterator[str]:
    if element == BARRIER:
        yield f'<rect x="{x - 5}" y="{y - 14}" width="10" height="28" fill="{ORANGE}" stroke="{INK}"/>'
    else:
        yield f'<circle cx="{x}" cy="{y}" r="12" fill="#FFFFFF" stroke="{BLUE}" stroke-width="1.5"/>'
        yield f'<text x="{x}" y="{y + 5}" text-anchor="middle" font-size="14" fill="{INK}">{element}</text>'


# One order of deliveries

TOP, ROW = 74, 30  # pixels: where the first row begins; from row to row
COLUMNS = {"partition 0": 70, "partition 1": 200, "task a": 420, "task b": 590, TOTAL: 790}


def draw_barriers(order: Order) -> Drawing:
    """Return an order of deliveries as a picture: time runs down, and the last line says what a restore brings."""
    right = bool(order.counts) and all(order.counts[name] == TRUTH[name] for name in TRUTH)
    if not order.counts:
        verdict = "the checkpoint is never complete"
    elif right:
        verdict = "all counts are right, and what waits is never read"
    else:
        verdict = " · ".join(f"{name_of(name)} counts {order.counts[name]} of {TRUTH[name]}" for name in TRUTH)
    words = f"{order}\nAfter a restore: {verdict}"
    height = TOP + ROW * len(order.deliveries) + 66
    parts = _order(order, verdict, height, right)
    return document(WIDTH, height, f"Barriers: {order.anomaly}", words, parts)


def _order(order: Order, verdict: str, height: int, right: bool) -> Iterator[str]:
    for name, x in COLUMNS.items():
        source = name in SOURCES
        yield line(x, 44, x, height - 56, FAINT)
        yield box(x - 55, 12, 110, 32, fill=PALE_BLUE if source else PALE, edge=BLUE if source else INK)
        yield text(x, 33, name, anchor="middle", size=15, weight="bold")
    yield from _blocked(order)
    for n, each in enumerate(order.deliveries):
        yield from _delivery(TOP + ROW * n, n, each)
    crash = "The position is 2 in both partitions. Crash, restore, and the rest of the log:"
    yield text(10, height - 30, crash, colour=GREY)
    yield text(10, height - 10, verdict, size=15, weight="bold", colour=DARK_GREEN if right else DARK_RED)


def _delivery(y: int, n: int, each: Delivery) -> Iterator[str]:
    left, right = COLUMNS[each.source], COLUMNS[name_of(each.task)]
    barrier = each.element == BARRIER
    yield text(10, y + 4, str(n + 1), size=12, colour=GREY)
    yield arrow(left, y, right, y, colour=ORANGE if barrier else BLUE)
    yield text(left + 18, y - 4, "barrier" if barrier else each.element, size=13, colour="#8A5A00" if barrier else INK)
    said = [] if barrier else [str(each.after.counted)]
    stores = each.after.snapshot != each.before.snapshot
    if stores:
        said.append(f"stores {each.after.snapshot}")
    if each.after.in_flight > each.before.in_flight:
        said.append("stored, too")
    if each.before.blocked - each.after.blocked:
        said.append("unblocks")
    weight, colour = ("bold", DARK_GREEN) if stores else ("normal", INK)
    yield text(right + 10, y + 5, ", ".join(said), weight=weight, colour=colour)


def _blocked(order: Order) -> Iterator[str]:
    """Draw a bar along a task's line for as long as it blocks a channel."""
    begun: dict[tuple[str, str], int] = {}
    for n, each in enumerate(order.deliveries):
        y = TOP + ROW * n
        begun |= {(each.task, channel): y for channel in each.after.blocked - each.before.blocked}
        for channel in each.before.blocked - each.after.blocked:
            yield _bar(each.task, begun.pop((each.task, channel)), y)
    for (task, _), y in begun.items():
        yield _bar(task, y, TOP + ROW * len(order.deliveries))


def _bar(task: str, first: int, last: int) -> str:
    x, height = COLUMNS[name_of(task)] - 4, max(last - first, 6)
    return f'<rect x="{x}" y="{first}" width="8" height="{height}" fill="{GREEN}" opacity="0.35"/>'


# The explorable barrier

HERE = Path(__file__).parent
STILL = "data-barrier"  # the attribute of a picture that a published page makes live


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
    """Return the delivery's turn: first what partition 1 sends, then what the tasks send on, then the rest."""
    return {"partition 1": 0, "partition 0": 2}.get(delivery.source, 1)


@functools.cache
def barrier_data() -> dict[str, Any]:
    """Return {rule: {"pictures": [SVG], "words": [text], "wrong": [bool]}}.

    Each list has an element for the start and one for the state after each delivery.
    """
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
