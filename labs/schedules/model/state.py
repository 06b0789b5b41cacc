"""What the model knows: where each driver is, what is under way, what Kafka and Spark's checkpoint hold."""

from __future__ import annotations

from typing import NamedTuple

from labs.schedules.model.tuples import put, without
from labs.schedules.schedule import Event

NEVER = -1
COMING = -2  # of an epoch: it is asked for


class Driver(NamedTuple):
    """Where a driver is: at which step of which batch, and of the step `rows` at which record."""

    batch: int = 0
    step: int = 0
    row: int = 0  # records of the batch that are sent
    epoch: int = NEVER
    waiting: bool = False  # for an answer
    alive: bool = True
    fresh: bool = True  # in its first batch, which another driver may have planned
    computed: bool = False  # whether the batch's plan was executed, which writes Spark's state
    saw: tuple[Marker | None, ...] = ()  # the marker, if it was read before the driver had to do anything at all
    again: bool = False  # whether the batch's rows are written again, since Kafka was silent the first time


class Marker(NamedTuple):
    """Which batch was published: its number, where its plan ended, and which query it belonged to."""

    batch: int
    end: int
    query: int = 0


class Request(NamedTuple):
    """What is under way in the network. `number` is its place in all that the driver sends: its sequence number."""

    driver: int
    what: str
    batch: int
    row: int | None
    epoch: int
    number: int
    end: int  # what the batch was planned to hold: records up to this one
    query: int = 0
    copy: bool = False
    task: str = ""  # of the driver's, if it is that which sends

    @property
    def sent(self) -> Event:
        """That the driver, or its task, sends it. The epoch is said where Kafka looks at it."""
        epoch = None if self.what in ("fence", "read marker") else self.epoch
        return Event(self.task or f"driver {self.driver + 1}", self.what, self.batch, self.row, epoch)

    def carried(self, action: str, answer: str = "") -> Event:
        """What the network does with it, and what comes back."""
        sent = self.sent
        return sent._replace(actor="network", action=action, answer=answer, request=self.what, whose=sent.actor)


class Spare(NamedTuple):
    """A driver that is kept warm: whether it is told to take over, and what it has got before that, if it is wrong."""

    told: bool = False
    epoch: int = NEVER
    saw: tuple[Marker | None, ...] = ()


class Task(NamedTuple):
    """One attempt of a task, under the epoch of its driver: what was acknowledged to it, and what it reports."""

    driver: int
    number: int
    batch: int
    epoch: int
    again: bool = False
    acknowledged: int = 0  # records
    waiting: bool = False  # for an answer
    report: str = ""  # "done", "silent" or "failed"
    repeats: bool = False  # what the tasks before it wrote, to whom Kafka was silent

    @property
    def name(self) -> str:
        return f"task {self.number + 1}" + (" again" if self.again else "")


class State(NamedTuple):
    drivers: tuple[Driver, ...] = (Driver(),)  # the last one is the newest
    spare: Spare | None = None  # who comes next, if it is kept warm
    tasks: tuple[Task, ...] = ()
    net: frozenset[Request] = frozenset()
    # In Kafka: the topic, the newest epoch, the marker in the topic and in the open transaction.
    log: tuple[tuple[int, int, str], ...] = ()  # (record, batch, "open", "committed" or "aborted")
    epoch: int = NEVER
    marker: Marker | None = None
    pending: Marker | None = None
    remembered: frozenset[tuple[int, int]] = frozenset()  # the sequence numbers that were taken
    # In Spark's checkpoint: where each planned batch ends; the last that is done; whether a state is missing.
    planned: tuple[int, ...] = ()
    noted: int = NEVER
    hole: bool = False
    query: int = 0  # which one the checkpoint belongs to: a new one, if the checkpoint was gone
    first: int = 0  # the query's first batch
    old_ends: frozenset[int] = frozenset()  # where batches of the queries before ended
    grown: bool = False  # the source has more for the next batch than it had when that was first planned
    witness: int | None = None  # in the checkpoint: in which topic the marker was to be, before anything was published
    topic: int = 0  # that the marker is in now: another one, if the first was deleted
    committed: int = NEVER  # the epoch that was committed last
    aborted: int = NEVER  # the epoch that was aborted last, as long as that makes a difference
    refused: bool = False
    luck: tuple[str, ...] = ()  # what may still go wrong, apart from drivers and delays


def begin(state: State, batch: int) -> int:
    """Return the first record of a batch that is planned, or is planned next."""
    return state.planned[batch - 1] if batch else 0


def with_driver(state: State, n: int, driver: Driver) -> State:
    return state._replace(drivers=put(state.drivers, n, driver))


def all_gone(drivers: tuple[Driver, ...]) -> tuple[Driver, ...]:
    return tuple(driver._replace(alive=False) for driver in drivers)


def spent(state: State, what: str) -> State:
    """Take one piece of bad luck from what may still happen."""
    return state._replace(luck=without(state.luck, what))
