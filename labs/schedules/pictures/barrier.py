"""A job with barriers: the job itself, and one order in which its records and barriers are delivered."""

from __future__ import annotations

from collections.abc import Iterator

from labs.schedules.barrier import BARRIER, KEYS, LOG, SOURCES, TOTAL, TRUTH, Delivery, Job, Order, name_of, start
from labs.schedules.svg import (
    BLUE,
    DARK_RED,
    GREEN,
    GREY,
    INK,
    ORANGE,
    PALE,
    Drawing,
    arrow,
    box,
    document,
    line,
    text,
)

WIDTH, TOP, ROW = 940, 74, 30  # pixels; where the first row begins; from row to row
COLUMNS = {"partition 0": 70, "partition 1": 200, "task a": 420, "task b": 590, TOTAL: 790}
DARK_GREEN, DARK_ORANGE = "#00654A", "#8A5A00"  # for words, which need more contrast than lines

JOB = (
    "The job. Partition 0 sends a, a, the barrier, b; partition 1 sends b, a, the barrier, a, a. Each record goes to "
    "the task that counts its key, a or b, and each barrier goes to both. For each record that they count, both tasks "
    "send one on to total."
)


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
        for name, state in zip((*KEYS, TOTAL), job.tasks, strict=True)
    ]
    on_its_way = "; ".join(channels) or "nothing"
    return f"{JOB if job == start() else ''} On its way: {on_its_way}. {'; '.join(counts)}.".strip()


PLACES = {
    "partition 0": (10, 60),
    "partition 1": (10, 190),
    "task a": (420, 60),
    "task b": (420, 190),
    TOTAL: (790, 125),
}
BOX_WIDTH, BOX_HEIGHT = 130, 62
# Where the oldest element of a channel is, at the right end of its arrow: (x, y), and where the arrow begins and ends.
LANES = {
    ("partition 0", "a"): ((142, 78), (417, 78)),
    ("partition 0", "b"): ((142, 108), (417, 205)),
    ("partition 1", "a"): ((142, 205), (417, 108)),
    ("partition 1", "b"): ((142, 236), (417, 236)),
    ("task a", TOTAL): ((553, 91), (787, 145)),
    ("task b", TOTAL): ((553, 221), (787, 170)),
}


def _job(job: Job) -> Iterator[str]:
    yield text(10, 26, "The records and barriers that are on their way", size=17, weight="bold")
    for (source, task), ((x1, y1), (x2, y2)) in LANES.items():
        yield line(x1, y1, x2, y2, "#7FB8D8", width=1.5)
        [channel] = [each for each in job.channels if (each.source, each.task) == (source, task)]
        blocked = source in job.task(task).blocked
        for n, element in enumerate(channel.waiting):
            # the oldest is nearest to its task
            at = 1 - (30 + 44 * n) / max(abs(x2 - x1), 1)
            yield from _element(round(x1 + (x2 - x1) * at), round(y1 + (y2 - y1) * at), element)
        if blocked:
            yield line(x2 - 6, y2 - 12, x2 - 6, y2 + 12, INK, width=5)
    states = {name_of(name): state for name, state in zip((*KEYS, TOTAL), job.tasks, strict=True)}
    for name, (x, y) in PLACES.items():
        yield box(
            x,
            y,
            BOX_WIDTH,
            BOX_HEIGHT,
            fill="#E5F1F8" if name in SOURCES else PALE,
            edge=BLUE if name in SOURCES else INK,
        )
        yield text(x + BOX_WIDTH // 2, y + 24, name, anchor="middle", size=15, weight="bold")
        if name in SOURCES:
            below = " ".join(LOG[SOURCES.index(name)])
        else:
            below = f"counts {states[name].counted}"
            if states[name].snapshot is not None:
                stored = f"stored {states[name].snapshot}"
                if states[name].in_flight:
                    stored += f" + {states[name].in_flight} in flight"
                yield text(
                    x + BOX_WIDTH // 2, y + BOX_HEIGHT + 20, stored, anchor="middle", weight="bold", colour=DARK_GREEN
                )
        yield text(x + BOX_WIDTH // 2, y + 46, below, anchor="middle", size=14)


def _element(x: int, y: int, element: str) -> Iterator[str]:
    if element == BARRIER:
        yield f'<rect x="{x - 5}" y="{y - 14}" width="10" height="28" fill="{ORANGE}" stroke="{INK}"/>'
    else:
        yield f'<circle cx="{x}" cy="{y}" r="12" fill="#FFFFFF" stroke="{BLUE}" stroke-width="1.5"/>'
        yield f'<text x="{x}" y="{y + 5}" text-anchor="middle" font-size="14" fill="{INK}">{element}</text>'


def draw_barriers(order: Order) -> Drawing:
    """Return an order of deliveries as a picture: time runs down, and at the foot stands what a restore brings."""
    verdict = _verdict(order)
    words = f"{order}\nAfter a restore: {verdict}"
    height = TOP + ROW * len(order.deliveries) + 66
    return document(WIDTH, height, f"Barriers: {order.anomaly}", words, _order(order, verdict, height))


def _verdict(order: Order) -> str:
    if not order.counts:
        return "the checkpoint is never complete"
    if all(order.counts[name] == TRUTH[name] for name in TRUTH):
        return "all counts are right, and what waits is never read"
    return " · ".join(f"{name_of(name)} counts {order.counts[name]} of {TRUTH[name]}" for name in TRUTH)


def _order(order: Order, verdict: str, height: int) -> Iterator[str]:
    bottom = height - 56
    for name, x in COLUMNS.items():
        yield line(x, 44, x, bottom, "#BBBBBB")
        yield box(
            x - 55, 12, 110, 32, fill="#E5F1F8" if name in SOURCES else PALE, edge=BLUE if name in SOURCES else INK
        )
        yield text(x, 33, name, anchor="middle", size=15, weight="bold")
    yield from _blocked(order)
    for n, each in enumerate(order.deliveries):
        yield from _delivery(TOP + ROW * n, n, each)
    right = bool(order.counts) and all(order.counts[name] == TRUTH[name] for name in TRUTH)
    yield text(
        10, height - 30, "The position is 2 in both partitions. Crash, restore, and the rest of the log:", colour=GREY
    )
    yield text(10, height - 10, verdict, size=15, weight="bold", colour=DARK_GREEN if right else DARK_RED)


def _delivery(y: int, n: int, each: Delivery) -> Iterator[str]:
    left, right = COLUMNS[each.source], COLUMNS[name_of(each.task)]
    barrier = each.element == BARRIER
    yield text(10, y + 4, str(n + 1), size=12, colour=GREY)
    yield arrow(left, y, right, y, colour=ORANGE if barrier else BLUE)
    yield text(
        left + 18, y - 4, "barrier" if barrier else each.element, size=13, colour=DARK_ORANGE if barrier else INK
    )
    said = [] if barrier else [str(each.after.counted)]
    if each.after.snapshot != each.before.snapshot:
        said.append(f"stores {each.after.snapshot}")
    if each.after.in_flight > each.before.in_flight:
        said.append("stored, too")
    if each.before.blocked - each.after.blocked:
        said.append("unblocks")
    stores = each.after.snapshot != each.before.snapshot
    words = ", ".join(said)
    yield text(right + 10, y + 5, words, weight="bold" if stores else "normal", colour=DARK_GREEN if stores else INK)


def _blocked(order: Order) -> Iterator[str]:
    """Draw when a task holds a channel back: a bar along its line."""
    begun: dict[tuple[str, str], int] = {}
    last = TOP + ROW * len(order.deliveries)
    for n, each in enumerate(order.deliveries):
        y = TOP + ROW * n
        for channel in each.after.blocked - each.before.blocked:
            begun[each.task, channel] = y
        for channel in each.before.blocked - each.after.blocked:
            yield from _bar(each.task, channel, begun.pop((each.task, channel)), y)
    for (task, channel), y in begun.items():
        yield from _bar(task, channel, y, last)


def _bar(task: str, channel: str, first: int, last: int) -> Iterator[str]:
    x = COLUMNS[name_of(task)]
    yield f'<rect x="{x - 4}" y="{first}" width="8" height="{max(last - first, 6)}" fill="{GREEN}" opacity="0.35"/>'
