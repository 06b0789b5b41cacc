"""A state of the model, what Kafka does with a request in it, and what a driver does next.

A state is where each driver is, which messages are under way, and what Kafka and Spark's checkpoint hold. Transaction
coordinator, topic and marker are one Kafka here. States are tuples: a change makes a new tuple, and equal states are
equal tuples.

The model finds a driver's next step with a fresh generator of the sink's protocol: it sends the generator the answers
that the driver has had so far. Spark takes two steps around the protocol of a batch: it plans the batch before, and
notes it as done afterwards. A wrong protocol may yield "note" itself: then the batch is noted too early.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Generator
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeVar

from exactly_once_kafka.plan import spelled
from exactly_once_kafka.protocol import STEPS, Batch, MarkerMismatch, Protocol, next_step
from exactly_once_kafka.protocol import Marker as RealMarker
from labs.schedules.schedule import Event, ScheduleError

NEVER = -1
COMING = -2  # an epoch that the driver has asked for and has not received yet

Item = TypeVar("Item")


class Marker(NamedTuple):
    """Which batch was published: its number, where its plan ended, and which query it belonged to."""

    batch: int
    end: int
    query: int = 0


class Driver(NamedTuple):
    """Where a driver is in the protocol of a batch: `history` has the answers to its steps, the step "plan" included.

    A generator can neither be copied nor compared, but its answers can: a fresh generator that gets the same answers
    yields the same next step.
    """

    batch: int = 0
    history: tuple[Any, ...] = ()
    row: int = 0  # how many records of the batch it has sent
    has_epoch: bool = False  # at the beginning of the batch
    epoch: int = NEVER
    given: bool = False  # whether the epoch came with the commit of the batch before
    waiting: bool = False  # for an answer
    alive: bool = True
    fresh: bool = True  # it is in its first batch, which another driver may have planned
    computed: bool = False  # whether the batch's plan was executed, which writes Spark's state
    saw: tuple[Marker | None, ...] = ()  # the marker, if a wrong spare has read it too early
    again: bool = False  # whether it writes the batch's rows again, since Kafka was silent the first time


class Request(NamedTuple):
    """A request under way in the network. `number` is its sequence number among all that the driver sends."""

    driver: int
    what: str
    batch: int
    row: int | None = None
    epoch: int = NEVER
    number: int = 0
    marker: Marker | None = None  # to be written
    ahead: bool = False  # whether its sender goes on without the answer
    copy: bool = False
    task: str = ""  # the driver's task, if a task sends it

    @property
    def sent(self) -> Event:
        """The event in which the driver or its task sends it, with the epoch if Kafka looks at that."""
        epoch = None if self.what in ("fence", "read marker") else self.epoch
        return Event(self.task or f"driver {self.driver + 1}", self.what, self.batch, self.row, epoch)

    def carried(self, action: str, answer: str = "") -> Event:
        """The event in which the network delivers or loses it."""
        sent = self.sent
        return sent._replace(actor="network", action=action, answer=answer, request=self.what, whose=sent.actor)


class Spare(NamedTuple):
    """A hot spare, which waits to be `told` to take over. A wrong one has an epoch or the marker before that."""

    told: bool = False
    epoch: int = NEVER
    saw: tuple[Marker | None, ...] = ()


class Task(NamedTuple):
    """One attempt of a task, under the epoch of its driver: how many records are acknowledged, and its report."""

    driver: int
    number: int
    batch: int
    epoch: int
    again: bool = False
    acknowledged: int = 0  # records
    waiting: bool = False  # for an answer
    report: str = ""  # "done", "silent" or "failed"
    repeats: bool = False  # whether earlier tasks wrote the same rows, and got no answer from Kafka

    @property
    def name(self) -> str:
        return f"task {self.number + 1}" + (" again" if self.again else "")


class State(NamedTuple):
    drivers: tuple[Driver, ...] = (Driver(),)  # the last one is the newest
    spare: Spare | None = None  # the next driver, if it is kept warm
    tasks: tuple[Task, ...] = ()
    net: frozenset[Request] = frozenset()
    # In Kafka: the topic, the newest epoch, the marker in the topic and in the open transaction.
    log: tuple[tuple[int, int, str], ...] = ()  # (record, batch, "open", "committed" or "aborted")
    epoch: int = NEVER
    marker: Marker | None = None
    pending: Marker | None = None
    remembered: frozenset[tuple[int, int]] = frozenset()  # driver and sequence number of the records in the log
    topic: int = 0  # which topic the marker is in: another one after the first was deleted
    committed: int = NEVER  # the epoch that was committed last, for executors
    aborted: int = NEVER  # the epoch that was aborted last, as long as a driver may ask for that abort again
    # In Spark's checkpoint: where each planned batch ends, the last batch that is done, whether a state is missing.
    planned: tuple[int, ...] = ()
    noted: int = NEVER
    hole: bool = False
    checkpoint_note: int | None = None  # the topic in which the first look expected the marker
    query: int = 0  # which query the checkpoint belongs to: a new one if the checkpoint was gone
    first: int = 0  # the query's first batch
    old_ends: frozenset[int] = frozenset()  # where batches of the queries before ended
    grown: bool = False  # the source has one more record for the next batch than when that was first planned
    refused: bool = False
    faults: tuple[str, ...] = ()  # what may still go wrong, besides crashes, sleeps and delays


def begin(state: State, batch: int) -> int:
    """Return the first record of a planned batch, or of the batch that is planned next."""
    return state.planned[batch - 1] if batch else 0


def put(values: tuple[Item, ...], n: int, value: Item) -> tuple[Item, ...]:
    """Return the values with the n-th one replaced."""
    return (*values[:n], value, *values[n + 1 :])


def with_driver(state: State, n: int, driver: Driver) -> State:
    return state._replace(drivers=put(state.drivers, n, driver))


def ended(state: State, n: int, driver: Driver) -> State:
    """End a driver that is fenced, refuses, or finds that another driver has written the file it wants to write."""
    return with_driver(state, n, driver._replace(alive=False))


def all_gone(drivers: tuple[Driver, ...]) -> tuple[Driver, ...]:
    return tuple(driver._replace(alive=False) for driver in drivers)


def spent(state: State, what: str) -> State:
    """Take one fault from what may still happen."""
    return state._replace(faults=tuple(each for each in state.faults if each != what))


FENCED = "fenced"


@dataclass(frozen=True)
class Kafka:
    """What Kafka does with requests.

    `transactional`: a commit makes rows visible. `idempotent`: Kafka recognises a repeated record by its sequence
    number. `epoch_by_commit`: each commit gives a new epoch (KIP-890).
    """

    transactional: bool = True
    idempotent: bool = True
    epoch_by_commit: bool = False

    def carried_out(self, state: State, request: Request) -> tuple[State, str]:
        """Return the state after a request, and the answer."""
        if request.what == "fence":
            return with_new_epoch(end(state, "aborted"))
        if request.what == "read marker":
            return state, in_words(state.marker)
        if self.transactional and request.epoch != state.epoch:
            return state, FENCED
        if request.what == "row":
            return self._written(state, request)
        if request.what == "marker":
            marker = request.marker
            return (state._replace(pending=marker) if self.transactional else state._replace(marker=marker)), "ok"
        if request.what == "abort":
            return with_new_epoch(end(state, "aborted"))
        assert request.what == "commit", request
        state = end(state, "committed")
        return with_new_epoch(state) if self.epoch_by_commit else (state, "ok")

    def _written(self, state: State, request: Request) -> tuple[State, str]:
        """Write a record, unless its producer has sent one with this sequence number before."""
        key = (request.driver, request.number)
        if self.idempotent and key in state.remembered:
            return state, "known already"
        assert request.row is not None
        record = (request.row, request.batch, "open" if self.transactional else "committed")
        remembered = state.remembered | {key} if self.idempotent else state.remembered
        return state._replace(log=(*state.log, record), remembered=remembered), "ok"


def with_new_epoch(state: State) -> tuple[State, str]:
    """Grant the next epoch, which fences every driver that has an older one."""
    return state._replace(epoch=state.epoch + 1), f"epoch {state.epoch + 1}"


def is_open(state: State) -> bool:
    """Tell whether a transaction is open."""
    return state.pending is not None or any(status == "open" for _, _, status in state.log)


def end(state: State, outcome: str) -> State:
    """End the open transaction, if there is one: `committed` or `aborted`."""
    if not is_open(state):
        return state
    log = tuple((r, b, outcome if status == "open" else status) for r, b, status in state.log)
    marker = state.pending if outcome == "committed" and state.pending else state.marker
    return state._replace(log=log, marker=marker, pending=None)


def in_words(marker: Marker | None) -> str:
    return f"batch {marker.batch}" if marker else "none"


BatchProtocol = Callable[[Batch, bool], Protocol]

END, REFUSES = "end", "refuses"  # instead of a step
OVER = ("over",)  # the history of a driver whose protocol has ended: its answers make no difference any more
MOST_STEPS = 30  # of a protocol without faults


class Facts(NamedTuple):
    """What a protocol knows of its batch, in the model's numbers."""

    number: int
    begin: int
    end: int
    query: int
    first: int  # batch of the query


def facts_of(state: State, driver: Driver) -> Facts:
    """Return the facts of the driver's batch, which is planned."""
    return Facts(driver.batch, begin(state, driver.batch), state.planned[driver.batch], state.query, state.first)


def wanted(protocol: BatchProtocol, state: State, driver: Driver) -> str:
    """Return the step that a driver takes next, or END, or REFUSES."""
    if not driver.history:
        return "plan"
    if driver.history[0] == OVER[0]:
        return "note" if driver.history == OVER else END
    return _after(protocol, facts_of(state, driver), driver.has_epoch, driver.history)


def told(protocol: BatchProtocol, state: State, driver: Driver, answer: Any) -> Driver:
    """Return the driver with one more answer."""
    driver = driver._replace(history=(*driver.history, answer), waiting=False)
    if wanted(protocol, state, driver) == "note":
        noted = driver._replace(history=(*driver.history, None))
        if wanted(protocol, state, noted) == END:
            return driver._replace(history=OVER, has_epoch=False)
    return driver


@functools.cache
def _after(protocol: BatchProtocol, facts: Facts, has_epoch: bool, history: tuple[Any, ...]) -> str:
    batch = _real_batch(facts)
    steps = _with_sparks(protocol(batch, has_epoch))
    try:
        step = next_step(steps, None)
        for answer in history:
            step = next_step(steps, _real_marker(answer, facts) if isinstance(answer, Marker) else answer)
    except MarkerMismatch:
        return REFUSES
    return END if step is None else step


def _with_sparks(protocol: Protocol) -> Generator[Any, Any, None]:
    """Yield the steps of a protocol, and Spark's steps before and after them."""
    yield "plan"
    noted, step = False, next_step(protocol, None)
    while step:
        noted = noted or step == "note"
        step = next_step(protocol, (yield step))
    if not noted:
        yield "note"


@functools.cache
def steps_of(protocol: BatchProtocol) -> tuple[str, ...]:
    """Return the steps of a driver's first batch without faults. Raises ScheduleError for an unknown step."""
    steps, history = list[str](), tuple[Any, ...]()
    while (step := _after(protocol, Facts(0, 0, 1, 0, 0), False, history)) not in (END, REFUSES):
        if step not in ("plan", "note", *STEPS):
            raise ScheduleError(f"there is no step {step!r}; there are: {', '.join(STEPS)}")
        if step == "plan" and steps:
            raise ScheduleError('Spark plans a batch before its protocol begins, and a protocol has no step "plan"')
        if len(steps) == MOST_STEPS:
            raise ScheduleError(f"the protocol takes more than {MOST_STEPS} steps for a batch, and has no end")
        steps.append(step)
        history += (True if step == "rows" else None,)
    return tuple(steps)


def _real_batch(facts: Facts) -> Batch:
    number = facts.number - facts.first
    return Batch(_query(facts.query), number, _plan(facts.end), _plan(facts.begin) if number else None)


def _real_marker(marker: Marker, facts: Facts) -> RealMarker:
    return RealMarker(marker.batch - facts.first, _query(marker.query), _plan(marker.end))


def _query(query: int) -> str:
    return f"query {query}"


def _plan(end: int) -> str:
    return spelled({"end": end})
