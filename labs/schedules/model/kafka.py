"""The batches of a streaming query on their way into Kafka: drivers, the network, the broker and Spark's checkpoint.

What a driver does for a batch is a stage's `program`, one step after the other. Between any two of them anything may
happen: a request waits in the network as long as it likes, is lost, or arrives twice; the broker aborts an open
transaction; a second driver starts from the checkpoint, and the first sleeps on. It never has to wake up, so that a
crash is a sleep without end.

Left out: a broker that dies, since what it has acknowledged it keeps; more than one partition, leader and connection;
records that are sent before the one ahead is acknowledged; and all that takes time. An answer is never lost alone: to
its driver that is the same as a request that arrives when nobody waits for it any more.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from labs.schedules.model.broker import carried_out, is_open, timed_out
from labs.schedules.model.driver import acts, at_its_step, hears
from labs.schedules.model.properties import anomaly, ending
from labs.schedules.model.state import COMING, Driver, Request, State, spent, with_driver
from labs.schedules.schedule import REQUESTS, Event, ScheduleError

STEPS = ("plan", "look", "fence", "read marker", "rows", "marker", "commit", "fence ahead", "note")


@dataclass(frozen=True)
class Stage:
    """How batches are written, and what may go wrong; the bounds within which everything is tried.

    `program` is made of plan, note, rows and the requests; of `look`, a reading of the marker by a driver that has no
    epoch yet; and of `fence ahead`, which asks for the next batch's epoch and does not wait for it. `keeps_epoch`: it
    is asked for once, not for each batch; `epoch_by_commit`: Kafka gives a new one with each commit (KIP-890).
    `keeps_checkpoint`: who starts next finds it; otherwise it `restarts_from` the earliest record or behind the latest.
    `marker_says_plan`, not its number alone; `has_witness`: the checkpoint says in which topic the marker was to be.
    """

    name: str
    program: tuple[str, ...]
    idempotent: bool = True
    keeps_epoch: bool = False
    epoch_by_commit: bool = False
    keeps_checkpoint: bool = True
    restarts_from: Literal["earliest", "latest"] = "earliest"
    marker_says_plan: bool = True
    has_witness: bool = False
    drains: bool = True
    batches: int = 2
    rows: int = 2
    drivers: int = 2
    luck: tuple[str, ...] = ("deliver again", "lose", "time out")

    def __post_init__(self) -> None:
        unknown = [step for step in self.program if step not in STEPS]
        if unknown:
            raise ScheduleError(f"there is no step {unknown[0]!r}; there are: {', '.join(STEPS)}")
        if self.program[:1] != ("plan",):
            raise ScheduleError('a batch begins with "plan": nobody knows before that what is in it')

    @property
    def transactional(self) -> bool:
        return "commit" in self.program

    def start(self) -> State:
        return State(luck=self.luck)

    # What may happen next

    def moves(self, state: State) -> Iterator[tuple[Event, State]]:
        """Yield what the network can do first: of schedules of one length, it delays the least in the one found."""
        yield from self._network(state)
        yield from self._drivers(state)
        yield from self._broker(state)
        yield from self._supervisor(state)

    def _network(self, state: State) -> Iterator[tuple[Event, State]]:
        for request in state.net:
            yield self._arrives(state._replace(net=state.net - {request}), request, "deliver")
            if "deliver again" in state.luck and not request.copy:
                again = state.net - {request} | {request._replace(copy=True)}
                yield self._arrives(spent(state, "deliver again")._replace(net=again), request, "deliver again")
            if "lose" in state.luck and not request.copy:
                yield _carries("lose", request), spent(state, "lose")._replace(net=state.net - {request})

    def _drivers(self, state: State) -> Iterator[tuple[Event, State]]:
        for n, driver in enumerate(state.drivers):
            if driver.alive and not driver.waiting and driver.batch < self.batches and not state.refused:
                driver = at_its_step(self, driver)
                if not (self.program[driver.step] == "fence" and driver.epoch == COMING):
                    yield self._acts(state, n, driver)

    def _acts(self, state: State, n: int, driver: Driver) -> tuple[Event, State]:
        return acts(self, state, n, driver)

    def _broker(self, state: State) -> Iterator[tuple[Event, State]]:
        if "time out" in state.luck and is_open(state):
            yield Event("broker", "time out"), timed_out(spent(state, "time out"))
        if "forget the marker" in state.luck and state.marker:
            forgetful = spent(state, "forget the marker")._replace(marker=None, topic=state.topic + 1)
            yield Event("broker", "forget the marker"), forgetful

    def _supervisor(self, state: State) -> Iterator[tuple[Event, State]]:
        if len(state.drivers) == self.drivers or state.refused:
            return
        batch, name = state.noted + 1, f"driver {len(state.drivers) + 1}"
        if self.keeps_checkpoint:
            started = state._replace(drivers=(*state.drivers, Driver(batch)))
            yield Event("supervisor", "start", batch, whose=name), started
        else:
            yield self._starts_anew(state, name)
        if "restore and start" in state.luck and state.planned:
            batch = min(batch, len(state.planned) - 1)
            restored = spent(state, "restore and start")._replace(
                drivers=(*_gone(state.drivers), Driver(batch)), planned=state.planned[:-1], noted=batch - 1, grown=True
            )
            yield Event("supervisor", "restore and start", batch, whose=name), restored

    def _starts_anew(self, state: State, name: str) -> tuple[Event, State]:
        """Start a new query with an empty checkpoint. Its batches are counted on, where it skips what is planned."""
        planned = state.planned if self.restarts_from == "latest" else ()
        batch = len(planned)
        fresh = state._replace(drivers=(*_gone(state.drivers), Driver(batch)), planned=planned, noted=batch - 1)
        event = Event("supervisor", "start anew", row=planned[-1] if planned else 0, whose=name)
        old = state.old_ends | frozenset(state.planned)
        return event, fresh._replace(hole=False, query=state.query + 1, first=batch, old_ends=old)

    def _arrives(self, state: State, request: Request, action: str) -> tuple[Event, State]:
        """Let Kafka carry out a request, and its driver hear the answer if it still waits for it."""
        state, answer = carried_out(
            state,
            request,
            transactional=self.transactional,
            idempotent=self.idempotent,
            epoch_by_commit=self.epoch_by_commit,
        )
        n, driver = request.driver, state.drivers[request.driver]
        if driver.alive and not request.copy:
            if request.what == "fence" and driver.epoch == COMING:
                state = with_driver(state, n, driver._replace(epoch=int(answer or 0)))
            elif driver.waiting:
                state = hears(self, state, n, driver._replace(waiting=False), request, answer)
        said = answer if isinstance(answer, str) else "ok" if answer is None else f"epoch {answer}"
        if request.what == "read marker":
            said = f"batch {state.marker[0]}" if state.marker else "none"
        return _carries(action, request, said), state

    # What must never be

    def anomaly(self, state: State) -> str | None:
        return anomaly(self, state)

    def ending(self, state: State) -> Iterator[tuple[Event, State]]:
        return ending(self, state)

    def visible(self, state: State) -> tuple[int, ...]:
        """Return the committed records, in the order of the topic."""
        return tuple(record for record, _, status in state.log if status == "committed")


def _gone(drivers: tuple[Driver, ...]) -> tuple[Driver, ...]:
    return tuple(driver._replace(alive=False) for driver in drivers)


def _carries(action: str, request: Request, answer: str = "") -> Event:
    assert request.what in REQUESTS
    carried = request.epoch if request.what not in ("fence", "read marker") else None
    return Event(
        "network",
        action,
        request.batch,
        request.row,
        carried,
        answer,
        request=request.what,
        whose=f"driver {request.driver + 1}",
    )
