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

from labs.schedules.model.broker import FENCED, Answer, carried_out, is_open, timed_out
from labs.schedules.model.properties import anomaly, ending
from labs.schedules.model.state import COMING, NEVER, Driver, Request, State, begin, spent, with_driver
from labs.schedules.schedule import REQUESTS, Event, ScheduleError

STEPS = ("plan", "look", "fence", "read marker", "rows", "marker", "commit", "fence ahead", "note")
REQUEST = {"look": "read marker", "fence ahead": "fence"}  # what a step sends, where it has another name


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
        for request in state.net:
            yield self._arrives(state._replace(net=state.net - {request}), request, "deliver")
            if "deliver again" in state.luck and not request.copy:
                again = state.net - {request} | {request._replace(copy=True)}
                yield self._arrives(spent(state, "deliver again")._replace(net=again), request, "deliver again")
            if "lose" in state.luck and not request.copy:
                yield _network("lose", request), spent(state, "lose")._replace(net=state.net - {request})
        for n, driver in enumerate(state.drivers):
            if driver.alive and not driver.waiting and driver.batch < self.batches and not state.refused:
                driver = self._at_its_step(driver)
                if not (self.program[driver.step] == "fence" and driver.epoch == COMING):
                    yield self._acts(state, n, driver)
        if "time out" in state.luck and is_open(state):
            yield Event("broker", "time out"), timed_out(spent(state, "time out"))
        if "forget the marker" in state.luck and state.marker:
            forgetful = spent(state, "forget the marker")._replace(marker=None, topic=state.topic + 1)
            yield Event("broker", "forget the marker"), forgetful
        if len(state.drivers) < self.drivers and not state.refused:
            number, batch = len(state.drivers) + 1, state.noted + 1
            if self.keeps_checkpoint:
                yield (
                    Event("supervisor", "start", batch, whose=f"driver {number}"),
                    state._replace(drivers=(*state.drivers, Driver(batch))),
                )
            else:
                yield self._starts_anew(state, f"driver {number}")
            if "restore and start" in state.luck and state.planned:
                batch = min(state.noted + 1, len(state.planned) - 1)
                gone = _gone(state.drivers)
                restored = spent(state, "restore and start")._replace(
                    drivers=(*gone, Driver(batch)), planned=state.planned[:-1], noted=batch - 1, grown=True
                )
                yield Event("supervisor", "restore and start", batch, whose=f"driver {number}"), restored

    def _starts_anew(self, state: State, name: str) -> tuple[Event, State]:
        """Start a new query with an empty checkpoint. Its batches are counted on, where it skips what is planned."""
        planned = state.planned if self.restarts_from == "latest" else ()
        batch = len(planned)
        fresh = state._replace(drivers=(*_gone(state.drivers), Driver(batch)), planned=planned, noted=batch - 1)
        event = Event("supervisor", "start anew", row=planned[-1] if planned else 0, whose=name)
        old = state.old_ends | frozenset(state.planned)
        return event, fresh._replace(hole=False, query=state.query + 1, first=batch, old_ends=old)

    def _acts(self, state: State, n: int, driver: Driver) -> tuple[Event, State]:
        """Let a driver take its next step: write to its checkpoint, or send a request."""
        actor, step, batch = f"driver {n + 1}", self.program[driver.step], driver.batch
        if step == "plan":
            return self._plans(state, n, driver)
        if step == "note":
            noted = state._replace(noted=max(state.noted, batch), hole=state.hole or not driver.computed)
            if state.noted >= batch:  # another driver has: Spark finds the file there, and fails
                return Event(actor, "note", batch, answer="it is noted"), with_driver(
                    state, n, driver._replace(alive=False)
                )
            return Event(actor, "note", batch), with_driver(noted, n, self._next_step(driver))
        what, row = ("row", begin(state, batch) + driver.row) if step == "rows" else (REQUEST.get(step, step), None)
        number = batch * 100 + driver.step * 10 + driver.row
        request = Request(n, what, batch, row, driver.epoch, number, state.planned[batch], state.query)
        sent = state._replace(net=state.net | {request})
        event = Event(actor, what, batch, row, None if what in ("fence", "read marker") else driver.epoch)
        if step == "fence ahead":
            return event, with_driver(sent, n, self._next_step(driver)._replace(epoch=COMING))
        return event, with_driver(sent, n, driver._replace(waiting=True))

    def _at_its_step(self, driver: Driver) -> Driver:
        """Pass over what a driver need not do because it has an epoch, or will have one."""
        needless: tuple[str, ...] = ()
        if driver.epoch != NEVER:
            needless = ("look", "fence") if self.keeps_epoch and driver.epoch != COMING else ("look",)
        while self.program[driver.step] in needless:
            driver = driver._replace(step=driver.step + 1)
        return driver

    def _next_step(self, driver: Driver) -> Driver:
        """Go on to the next step of the program, or to the next batch."""
        if driver.step + 1 < len(self.program):
            return driver._replace(step=driver.step + 1)
        return driver._replace(batch=driver.batch + 1, step=0, fresh=False, computed=False)

    def _plans(self, state: State, n: int, driver: Driver) -> tuple[Event, State]:
        batch, following = driver.batch, with_driver(state, n, self._next_step(driver))
        if state.hole:
            event = Event(f"driver {n + 1}", "plan", batch, answer="the state of the batch before is missing")
            return event, with_driver(state, n, driver._replace(alive=False))
        if batch < len(state.planned):
            event = Event(f"driver {n + 1}", "plan", batch, state.planned[batch] - 1)
            if driver.fresh:
                return event._replace(answer="as planned before"), following
            return event._replace(answer="another driver has"), with_driver(state, n, driver._replace(alive=False))
        end = min(begin(state, batch) + self.rows + state.grown, self.rows * self.batches)
        planned = following._replace(planned=(*state.planned, end), grown=False)
        return Event(f"driver {n + 1}", "plan", batch, end - 1), planned

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
                state = self._hears(state, n, driver._replace(waiting=False), request, answer)
        said = answer if isinstance(answer, str) else "ok" if answer is None else f"epoch {answer}"
        if request.what == "read marker":
            said = f"batch {state.marker[0]}" if state.marker else "none"
        return _network(action, request, said), state

    def _hears(self, state: State, n: int, driver: Driver, request: Request, answer: Answer) -> State:
        """Let a driver go on after an answer."""
        following = self._next_step(driver)
        if answer == FENCED:
            return with_driver(state, n, driver._replace(alive=False))
        if isinstance(answer, int):
            following = following._replace(epoch=answer)
        if request.what == "read marker":
            return self._decides(state, n, following)
        if request.what == "row":
            row = driver.row + 1
            more = row < state.planned[driver.batch] - begin(state, driver.batch)
            following = driver._replace(row=row) if more else following._replace(row=0, computed=True)
        return with_driver(state, n, following)

    def _decides(self, state: State, n: int, following: Driver) -> State:
        """Publish, skip what is published, or refuse what does not fit."""
        batch, end = following.batch, state.planned[following.batch]
        marker = state.marker
        ours = marker is not None and marker.query == state.query
        if marker and ours and marker.batch == batch and (marker.end == end or not self.marker_says_plan):
            skipped = following._replace(step=self.program.index("note"), computed=self.drains)
            return with_driver(state, n, skipped)
        follows = ours and marker.batch == batch - 1 if marker else batch == state.first
        if follows and (marker or state.witness in (None, state.topic)):
            if self.has_witness and not state.marker:
                state = state._replace(witness=state.topic)
            return with_driver(state, n, following)
        return with_driver(state._replace(refused=True), n, following._replace(alive=False))

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


def _network(action: str, request: Request, answer: str = "") -> Event:
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
