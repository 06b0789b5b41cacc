"""A checkpoint of a job that goes on reading: a rule for barriers, tried in every order of delivery.

    partition 0:  a a | b        ──►  task a  ──►  task total
    partition 1:  b a | a a      ──►  task b  ──►

Two partitions are read; each record goes to the task that counts its key, and that task sends one record on to the
task `total`, which counts them all. The coordinator asks for a checkpoint: each partition sends a barrier `|` down
both of its channels, behind its second record, and notes position 2. What a task does with a barrier is
`on_barrier(task, channel)`, a function of the student's.

Guarantee: `explore_orders` delivers records and barriers in every order that the channels allow: each channel keeps its
order, and a blocked one waits. In each state in which the checkpoint is complete, it crashes the job, restores it,
reads the rest of the log, and compares the counts.

Limitations: one checkpoint, one crash, seven records; a task handles one record at a time and never fails by itself.
"""

from __future__ import annotations

import functools
import inspect
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

BARRIER = "|"
LOG = (("a", "a", BARRIER, "b"), ("b", "a", BARRIER, "a", "a"))
KEYS, TOTAL = ("a", "b"), "total"
TASKS = (*KEYS, TOTAL)
SOURCES = ("partition 0", "partition 1")
TRUTH = {"a": 5, "b": 2, TOTAL: 7}
LOST, DOUBLED, STUCK = "lost", "doubled", "stuck"


class BarrierError(ValueError):
    """on_barrier did something that a task cannot do. The message says what and why."""


class TaskState(NamedTuple):
    """A task as a value: its count, and how far its part of the checkpoint is."""

    counted: int = 0
    snapshot: int | None = None  # the count that it stored
    in_flight: int = 0  # records that it stored beside the count, to be handled again after a restore
    arrived: frozenset[str] = frozenset()  # the channels whose barrier has come
    blocked: frozenset[str] = frozenset()
    recording: frozenset[str] = frozenset()
    forwarded: bool = False


class Task:
    """A task, as `on_barrier(task, channel)` receives it.

    name      "a", "b" or "total"
    channels  the names of the channels that bring it records and barriers: two
    arrived   the channels whose barrier has come, `channel` included
    blocked   the channels from which nothing more is delivered
    stored    tells whether the task has stored its count
    """

    __slots__ = ("channels", "name", "state")

    def __init__(self, name: str, state: TaskState):
        self.name, self.state, self.channels = name, state, CHANNELS[name]

    @property
    def arrived(self) -> frozenset[str]:
        return self.state.arrived

    @property
    def blocked(self) -> frozenset[str]:
        return self.state.blocked

    @property
    def stored(self) -> bool:
        return self.state.snapshot is not None

    def snapshot(self) -> None:
        """Store the count as it is now: this task's part of the checkpoint. A second call replaces the first."""
        self._change(snapshot=self.state.counted)

    def forward(self) -> None:
        """Send the barrier on. The task `total` acknowledges the checkpoint to the coordinator instead."""
        if self.state.forwarded:
            raise BarrierError(
                f"{name_of(self.name)} sends the barrier on a second time; one checkpoint has one barrier"
            )
        self._change(forwarded=True)

    def block(self, channel: str) -> None:
        """Deliver nothing more from a channel: its records and barriers wait."""
        self._change(blocked=self.state.blocked | {self._known(channel)})

    def unblock(self) -> None:
        """Deliver again from every channel."""
        self._change(blocked=frozenset())

    def record(self, channel: str) -> None:
        """Store, beside the count, the records that arrive from a channel before its barrier."""
        if self._known(channel) not in self.state.arrived:
            self._change(recording=self.state.recording | {channel})

    def _known(self, channel: str) -> str:
        if channel not in self.channels:
            known = " and ".join(sorted(self.channels))
            raise BarrierError(f"{name_of(self.name)} has no channel {channel!r}; it has {known}")
        return channel

    def _change(self, **changes: object) -> None:
        self.state = self.state._replace(**changes)  # type: ignore[arg-type]


OnBarrier = Callable[[Task, str], object]


class Channel(NamedTuple):
    """The records and barriers on their way from `source` to `task`, the oldest first."""

    source: str
    task: str
    waiting: tuple[str, ...]


class Job(NamedTuple):
    """The job as a value: its three tasks and its six channels."""

    tasks: tuple[TaskState, ...]
    channels: tuple[Channel, ...]

    def task(self, name: str) -> TaskState:
        return self.tasks[TASKS.index(name)]

    @property
    def complete(self) -> bool:
        """Tell whether every task has stored and acknowledged its part of the checkpoint."""
        return all(each.snapshot is not None and each.forwarded and not each.recording for each in self.tasks)


class Delivery(NamedTuple):
    """One step: the oldest element of a channel reaches its task, which was `before` and is `after`."""

    source: str
    task: str
    element: str
    before: TaskState
    after: TaskState

    def __str__(self) -> str:
        what = "the barrier" if self.element == BARRIER else f"record {self.element}"
        done = [] if self.element == BARRIER else [f"counts {self.after.counted}"]
        if self.after.snapshot != self.before.snapshot:
            done.append(f"stores {self.after.snapshot}")
        if self.after.in_flight > self.before.in_flight:
            done.append("stores the record, too")
        if self.after.forwarded and not self.before.forwarded:
            done.append("acknowledges" if self.task == TOTAL else "sends the barrier on")
        if blocked := self.after.blocked - self.before.blocked:
            done.append(f"blocks {', '.join(sorted(blocked))}")
        if self.before.blocked - self.after.blocked:
            done.append("unblocks")
        *first, last = done or ["does nothing"]
        done_so = f"{', '.join(first)} and {last}" if first else last
        return f"{what} of {self.source} reaches {name_of(self.task)}, which {done_so}"


def start() -> Job:
    """Return the job before anything is delivered: all that the partitions send is in their channels."""

    def sent(source: int, key: str) -> tuple[str, ...]:
        return tuple(element for element in LOG[source] if element in (key, BARRIER))

    channels = [Channel(name, key, sent(n, key)) for n, name in enumerate(SOURCES) for key in KEYS]
    return Job((TaskState(),) * len(TASKS), (*channels, *(Channel(name_of(key), TOTAL, ()) for key in KEYS)))


def name_of(task: str) -> str:
    """Return a task's name in a sentence, which is also the name of the channel that it sends into."""
    return task if task == TOTAL else f"task {task}"


CHANNELS = {name: frozenset(each.source for each in start().channels if each.task == name) for name in TASKS}


def deliveries(job: Job, on_barrier: OnBarrier) -> Iterator[tuple[Delivery, Job]]:
    """Yield what may happen next: the oldest element of any channel that is not blocked reaches its task."""
    for n, channel in enumerate(job.channels):
        before = job.task(channel.task)
        if channel.waiting and channel.source not in before.blocked:
            element, *rest = channel.waiting
            after = _handled(channel, element, before, on_barrier)
            channels = list(job.channels)
            channels[n] = channel._replace(waiting=tuple(rest))
            if channel.task != TOTAL:
                sent = (element,) * (after.counted - before.counted) + (BARRIER,) * (after.forwarded - before.forwarded)
                out = len(SOURCES) * len(KEYS) + KEYS.index(channel.task)
                channels[out] = channels[out]._replace(waiting=channels[out].waiting + sent)
            tasks = tuple(after if name == channel.task else each for name, each in zip(TASKS, job.tasks, strict=True))
            yield Delivery(channel.source, channel.task, element, before, after), Job(tasks, tuple(channels))


def _handled(channel: Channel, element: str, before: TaskState, on_barrier: OnBarrier) -> TaskState:
    if element != BARRIER:
        kept = before.in_flight + (channel.source in before.recording)
        return before._replace(counted=before.counted + 1, in_flight=kept)
    arrived, recording = before.arrived | {channel.source}, before.recording - {channel.source}
    task = Task(channel.task, before._replace(arrived=arrived, recording=recording))
    on_barrier(task, channel.source)
    return task.state


def _remembered(on_barrier: OnBarrier) -> OnBarrier:
    """Return a function that does the same, and calls on_barrier once for each situation."""
    known = functools.cache(functools.partial(_answered, on_barrier))

    def call(task: Task, channel: str) -> None:
        task.state = known(task.name, task.state, channel)

    return call


def _answered(on_barrier: OnBarrier, name: str, state: TaskState, channel: str) -> TaskState:
    """Return the task after on_barrier. Raises BarrierError if its state depends on more than task and channel."""
    task, once_more = Task(name, state), Task(name, state)
    for each in (task, once_more):
        if inspect.isgenerator(on_barrier(each, channel)):
            raise BarrierError(
                "on_barrier has a yield in it, so that calling it does nothing: it is to act, and return"
            )
    if task.state != once_more.state:
        raise BarrierError(
            f"in one and the same situation on_barrier does two different things with {name_of(name)}: it keeps "
            "something outside of the task, which no restore brings back, or it depends on chance"
        )
    return task.state


def restored(job: Job) -> dict[str, int]:
    """Crash now: return what each task counts after a restore from the checkpoint and the rest of the log.

    A task begins with its stored count, and handles the records that it stored in flight; then come the records behind
    the positions. A task that counts a key sends on one record for each that it handles.
    """
    counts = {}
    for key in KEYS:
        state, rest = job.task(key), sum(part[part.index(BARRIER) :].count(key) for part in LOG)
        counts[key] = (state.snapshot or 0) + state.in_flight + rest
    again = sum(counts[key] - (job.task(key).snapshot or 0) for key in KEYS)
    total = job.task(TOTAL)
    return {**counts, TOTAL: (total.snapshot or 0) + total.in_flight + again}


@dataclass(frozen=True)
class Order:
    """One order of deliveries, and the counts after a restore at its end, if the checkpoint is complete then."""

    deliveries: tuple[Delivery, ...]
    anomaly: str
    counts: dict[str, int] = field(default_factory=dict)

    def __str__(self) -> str:
        return "\n".join(f"{n:3}. {each}" for n, each in enumerate(self.deliveries, 1))


@dataclass(frozen=True)
class Explored:
    """The result of all orders: the number of states, and each task's least and greatest count after a restore.

    `shortest` is the shortest order that goes wrong, None if none does.
    """

    states: int
    counts: dict[str, tuple[int, int]]
    shortest: Order | None

    @property
    def anomaly(self) -> str:
        return self.shortest.anomaly if self.shortest else ""


def explore_orders(on_barrier: OnBarrier) -> Explored:
    """Try every order of deliveries. Raises BarrierError, and what on_barrier raises."""
    came_from: dict[Job, tuple[Job, Delivery] | None] = {start(): None}
    queue, shortest, call = deque(came_from), None, _remembered(on_barrier)
    seen: dict[str, set[int]] = {name: set() for name in TASKS}
    while queue:
        job = queue.popleft()
        following = list(deliveries(job, call))
        anomaly, counts = _judged(job, bool(following))
        for name, count in counts.items():
            seen[name].add(count)
        if anomaly and shortest is None:
            shortest = Order(_way_to(job, came_from), anomaly, counts)
        for delivery, after in following:
            if after not in came_from:
                came_from[after] = job, delivery
                queue.append(after)
    ranges = {name: (min(each), max(each)) for name, each in seen.items() if each}
    return Explored(len(came_from), ranges, shortest)


def follow(on_barrier: OnBarrier, turn: Callable[[Delivery], int]) -> list[tuple[Delivery, Job]]:
    """Return one order of deliveries, to its end. Of the possible deliveries, the one with the least `turn` is next."""
    job, way, call = start(), list[tuple[Delivery, Job]](), _remembered(on_barrier)
    while following := list(deliveries(job, call)):
        way.append(min(following, key=lambda each: turn(each[0])))
        job = way[-1][1]
    return way


def barriers_together(on_barrier: OnBarrier) -> Explored:
    """Try one order: the records before the barriers, then the barriers, then the records behind them."""

    def turn(delivery: Delivery) -> int:
        return 1 if delivery.element == BARRIER else 2 * (delivery.source in delivery.before.arrived)

    way = follow(on_barrier, turn)
    anomaly, counts = _judged(way[-1][1], False)
    wrong = Order(tuple(delivery for delivery, _ in way), anomaly, counts) if anomaly else None
    return Explored(len(way) + 1, {name: (count, count) for name, count in counts.items()}, wrong)


def _judged(job: Job, goes_on: bool) -> tuple[str, dict[str, int]]:
    """Return (the anomaly or "", the counts after a restore if the checkpoint is complete)."""
    if not job.complete:
        return ("" if goes_on else STUCK), {}
    counts = restored(job)
    off = max((counts[name] - TRUTH[name] for name in TASKS), key=abs)
    if not off:
        return ("" if goes_on or not any(each.waiting for each in job.channels) else STUCK), counts
    return (DOUBLED if off > 0 else LOST), counts


def _way_to(job: Job, came_from: dict[Job, tuple[Job, Delivery] | None]) -> tuple[Delivery, ...]:
    way = []
    while came := came_from[job]:
        job, delivery = came
        way.append(delivery)
    return tuple(reversed(way))
