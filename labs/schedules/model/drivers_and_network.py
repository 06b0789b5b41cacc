"""The model of a streaming query that writes batches to Kafka: drivers, network, broker and Spark's checkpoint.

For each batch a driver takes the steps of the stage's `protocol`, the generator that a sink runs. Between any two steps
anything may happen: a request stays in the network for any time, is lost, or arrives twice; the broker aborts an open
transaction; a second driver starts from the checkpoint while the first one sleeps. A driver that crashes is a driver
that sleeps and never wakes up, so the model has no step for a crash.

Limitations: no broker dies (it would keep what it has acknowledged); there is one partition, leader and connection; a
record is sent once the one before it is acknowledged; nothing depends on time. No answer is lost by itself: for the
driver this is the same as a request that arrives when the driver does not wait for its answer any more.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from dataclasses import dataclass, fields
from typing import Any, Literal

from labs.schedules.model.state import (
    COMING,
    END,
    FENCED,
    NEVER,
    REFUSES,
    BatchProtocol,
    Driver,
    Kafka,
    Marker,
    Request,
    Spare,
    State,
    all_gone,
    begin,
    end,
    ended,
    in_words,
    is_open,
    spent,
    steps_of,
    told,
    wanted,
    with_driver,
    with_new_epoch,
)
from labs.schedules.schedule import Event, ScheduleError

Moves = Iterator[tuple[Event, State]]

READINGS = ("look", "wait and look", "read marker")
REQUESTS = {  # step -> the request with which a transport takes it
    **dict.fromkeys(READINGS, "read marker"),
    "fence": "fence",
    "rows": "row",
    "abort": "abort",
    "marker": "marker",
    "commit": "commit",
    "next epoch": "fence",
}


@dataclass(frozen=True)
class Stage:
    """How batches are written, what may go wrong, and the bounds within which the checker tries everything.

    The transport is that of a sink whose driver writes: "rows" is one request for each record, and "next epoch" is a
    request whose answer the driver does not wait for. A driver keeps its epoch until it asks for another; so a protocol
    without "next epoch" has one for all batches. `epoch_by_commit`: Kafka gives a new epoch with each commit (KIP-890),
    and "next epoch" is no request. `faults` are what the environment may do, each once.
    """

    name: str
    protocol: BatchProtocol
    idempotent: bool = True
    epoch_by_commit: bool = False
    batches: int = 2
    rows: int = 2
    drivers: int = 2
    faults: tuple[str, ...] = ("deliver again", "lose", "time out")

    def __post_init__(self) -> None:
        steps_of(self.protocol)

    @property
    def steps(self) -> tuple[str, ...]:
        """The steps of a driver's first batch without faults, Spark's own steps included."""
        return steps_of(self.protocol)

    @functools.cached_property
    def transactional(self) -> bool:
        return not {"fence", "commit", "next epoch"}.isdisjoint(self.steps)

    @functools.cached_property
    def kafka(self) -> Kafka:
        return Kafka(self.transactional, self.idempotent, self.epoch_by_commit)

    @property
    def asks_ahead(self) -> bool:
        """Whether "next epoch" is a request."""
        return not self.epoch_by_commit

    def start(self) -> State:
        return State(faults=self.faults)

    def moves(self, state: State) -> Moves:
        """Yield all moves, the network's first: so the checker finds the shortest schedule with the least delay."""
        for request in state.net:
            yield from self._network(state, request)
        yield from self._executors(state)
        for n, driver in enumerate(state.drivers):
            if driver.alive and not driver.waiting and driver.batch < self.batches and not state.refused:
                yield from self._driver(state, n, driver)
        yield from self._environment(state)
        if len(state.drivers) < self.drivers and not state.refused:
            yield from self._supervisor(state, f"driver {len(state.drivers) + 1}")

    def visible(self, state: State) -> tuple[int, ...]:
        """Return the committed records, in the order of the topic."""
        return tuple(record for record, _, status in state.log if status == "committed")

    # What a driver does

    def wanted(self, state: State, driver: Driver) -> str:
        """Return the step that a driver takes next."""
        return wanted(self.protocol, state, driver)

    def _driver(self, state: State, n: int, driver: Driver) -> Moves:
        step = self.wanted(state, driver)
        if step == "plan":
            yield self._plans(state, n, driver)
        elif step == "note":
            yield self._notes(state, n, driver)
        elif driver.epoch != COMING:  # else the driver waits for its epoch
            yield self._asks(state, n, driver, step)

    def _plans(self, state: State, n: int, driver: Driver) -> tuple[Event, State]:
        """Write a plan of the records in the batch, or find the plan of an earlier driver, which is not changed."""
        event = Event(f"driver {n + 1}", "plan", driver.batch)
        if state.hole:
            return event._replace(answer="the state of the batch before is missing"), ended(state, n, driver)
        if driver.batch < len(state.planned):
            event = event._replace(row=state.planned[driver.batch] - 1)
            if driver.fresh:
                return event._replace(answer="as planned before"), self.goes_on(state, n, driver, None)
            return event._replace(answer="another driver has"), ended(state, n, driver)
        behind = min(begin(state, driver.batch) + self.rows + state.grown, self.rows * self.batches)
        planned = state._replace(planned=(*state.planned, behind), grown=False)
        return event._replace(row=behind - 1), self.goes_on(planned, n, driver, None)

    def _notes(self, state: State, n: int, driver: Driver) -> tuple[Event, State]:
        """Note the batch as done. If another driver has noted it, Spark finds the file and fails."""
        event, taken = Event(f"driver {n + 1}", "note", driver.batch), state.noted >= driver.batch
        state = state._replace(noted=max(state.noted, driver.batch), hole=state.hole or not driver.computed)
        if taken:
            return event._replace(answer="it is noted"), ended(state, n, driver)
        return event, self.goes_on(state, n, driver, None)

    def _asks(self, state: State, n: int, driver: Driver, step: str) -> tuple[Event, State]:
        """Send the request of a step, and wait for the answer, but not for the next batch's epoch."""
        request = self.request_of(state, n, driver, step)
        sent = state._replace(net=state.net | {request})
        if request.ahead:
            return request.sent, self.goes_on(sent, n, driver._replace(epoch=COMING), None)
        return request.sent, with_driver(sent, n, driver._replace(waiting=True))

    def request_of(self, state: State, n: int, driver: Driver, step: str) -> Request:
        if step not in REQUESTS:
            raise ScheduleError(f"there is no step {step!r}; there are: {', '.join(REQUESTS)}, drain")
        batch, ahead = driver.batch, step == "next epoch"
        row = begin(state, batch) + driver.row if step == "rows" else None
        number = (batch * 100 + len(driver.history)) * 100 + driver.row
        marker = Marker(batch, state.planned[batch], state.query) if step == "marker" else None
        return Request(n, REQUESTS[step], batch + ahead, row, driver.epoch, number, marker, ahead)

    def hears(self, state: State, n: int, request: Request, answer: str) -> State:
        """Let a driver go on after an answer."""
        driver = state.drivers[n]
        if request.ahead:
            return with_driver(state, n, driver._replace(epoch=state.epoch)) if driver.epoch == COMING else state
        if not driver.waiting:
            return state
        if answer == FENCED:
            return ended(state, n, driver._replace(waiting=False))
        if answer.startswith("epoch "):
            driver = driver._replace(epoch=state.epoch, given=False)
        if request.what == "read marker":
            return self._reads(state, n, driver)
        if request.what != "row":
            return self.goes_on(state, n, driver, None)
        if begin(state, driver.batch) + driver.row + 1 < state.planned[driver.batch]:
            return with_driver(state, n, driver._replace(row=driver.row + 1, waiting=False))
        return self.goes_on(state, n, driver._replace(row=0, computed=True), True)

    def _reads(self, state: State, n: int, driver: Driver) -> State:
        """Tell a driver the marker. If there is none, the query's first look notes its topic in the checkpoint.

        If there is no marker, and the topic is not the noted one, then the noted topic was deleted, perhaps with a
        marker in it. In this case a look refuses, and any other reading ends the driver.
        """
        looks = self.wanted(state, driver) == "look"
        if not state.marker and state.checkpoint_note not in (None, state.topic):
            return ended(state._replace(refused=looks), n, driver._replace(waiting=False))
        if looks and not state.marker and driver.batch == state.first:
            state = state._replace(checkpoint_note=state.topic)
        return self.goes_on(state, n, driver, state.marker)

    def goes_on(self, state: State, n: int, driver: Driver, answer: Any) -> State:
        """Send the protocol an answer, and take the next steps as long as they ask nothing of Kafka."""
        driver = told(self.protocol, state, driver, answer)
        step = self.wanted(state, driver)
        if step == REFUSES:
            return ended(state._replace(refused=True), n, driver)
        if step == END:
            has_epoch = driver.epoch != NEVER
            following = Driver(
                driver.batch + 1, has_epoch=has_epoch, epoch=driver.epoch, given=driver.given, fresh=False
            )
            return with_driver(state, n, following)
        if step == "drain":
            return self.goes_on(state, n, driver._replace(computed=True), None)
        if step == "next epoch" and not self.asks_ahead:
            return self.goes_on(state, n, driver._replace(given=True), None)
        if step == "read marker" and driver.given and driver.has_epoch:
            # It need not read: another driver would have fenced this one before writing a marker. So the marker is
            # still the one that this driver has committed with the batch before.
            last = driver.batch - 1
            return self.goes_on(state, n, driver, Marker(last, state.planned[last], state.query))
        return with_driver(state, n, driver)

    # What the environment does

    def _executors(self, state: State) -> Moves:
        """Yield what executors do. There are none in a stage whose driver writes."""
        return iter(())

    def _network(self, state: State, request: Request) -> Moves:
        gone = state._replace(net=state.net - {request})
        yield self._arrives(gone, request, "deliver")
        if "deliver again" in state.faults and not request.copy:
            again = spent(gone, "deliver again")._replace(net=gone.net | {request._replace(copy=True)})
            yield self._arrives(again, request, "deliver again")
        if "lose" in state.faults and not request.copy:
            yield request.carried("lose"), spent(gone, "lose")

    def _arrives(self, state: State, request: Request, action: str) -> tuple[Event, State]:
        """Let Kafka carry out a request, and tell its driver the answer if it still waits for one."""
        state, answer = self.kafka.carried_out(state, request)
        if state.drivers[request.driver].alive and not request.copy:
            state = self.hears(state, request.driver, request, answer)
        return request.carried(action, answer), state

    def _environment(self, state: State) -> Moves:
        """Yield the faults that strike neither a driver nor a request."""
        if "time out" in state.faults and is_open(state):  # Kafka aborts it and fences its producer
            after = with_new_epoch(end(spent(state, "time out"), "aborted"))[0]
            yield Event("broker", "time out"), after
        if "forget the marker" in state.faults and state.marker:
            after = spent(state, "forget the marker")._replace(marker=None, topic=state.topic + 1)
            yield Event("broker", "forget the marker"), after
        may_start = state.planned and len(state.drivers) < self.drivers and not state.refused
        if "restore and start" in state.faults and may_start:
            # The restored checkpoint lacks the last batch, the source has grown since then, and all drivers are dead.
            batch = min(state.noted + 1, len(state.planned) - 1)
            drivers = (*all_gone(state.drivers), Driver(batch))
            after = spent(state, "restore and start")._replace(drivers=drivers, planned=state.planned[:-1])
            event = Event("supervisor", "restore and start", batch, whose=f"driver {len(drivers)}")
            yield event, after._replace(noted=batch - 1, grown=True)

    def _supervisor(self, state: State, name: str) -> Moves:
        batch = state.noted + 1
        yield Event("supervisor", "start", batch, whose=name), state._replace(drivers=(*state.drivers, Driver(batch)))

    # What must never be

    def anomaly(self, state: State) -> str | None:
        """Name the anomaly: a record is doubled or lost, a batch is torn or out of order, or no driver gets further."""
        seen = self.visible(state)
        records = set(seen)
        if len(records) < len(seen):
            return "doubled"
        if state.noted >= 0 and not records >= set(range(state.planned[state.noted])):
            return "lost"
        if self.transactional and records:
            # Batches follow each other without a gap: the visible records begin with 0 and end where a batch ends.
            if records != set(range(len(records))):
                return "out of order"
            if len(records) not in {*state.planned, *state.old_ends, *([state.marker.end] if state.marker else [])}:
                return "torn"
        # The state in which all drivers are dead and the network is empty.
        rest = state._replace(drivers=(), spare=None, tasks=(), net=frozenset(), faults=(), grown=False)
        rest = rest._replace(remembered=frozenset())
        return None if _recovers(self, rest) else "stuck"

    def ending(self, state: State) -> Moves:
        """Yield the moves of a fresh driver without faults, once all others have crashed."""
        gone = all_gone(state.drivers)
        state = state._replace(drivers=(*gone, Driver(state.noted + 1)), spare=None, tasks=())
        state = state._replace(net=frozenset(), faults=())
        yield Event("supervisor", "start", state.noted + 1, whose=f"driver {len(gone) + 1}"), state
        while not state.refused and state.drivers[-1].alive and state.drivers[-1].batch < self.batches:
            event, state = next(self.moves(state))
            yield event, state


@functools.lru_cache(maxsize=100_000)
def _recovers(stage: Stage, state: State) -> bool:
    """Tell whether a fresh driver without faults finishes from here, or refuses."""
    for _, following in stage.ending(state):
        state = following
    return state.refused or state.noted == stage.batches - 1


# Other ways to start the next driver


@dataclass(frozen=True)
class WithSpare(Stage):
    """The next driver is a hot spare: it is up, and waits to be told to take over.

    Before it is told, it reads nothing and asks for no epoch. It may be told at any moment: the driver before it has
    crashed, or is only believed dead and wakes up later. Then it reads the checkpoint, at any moment, and is a driver
    like any other. `early` are the steps that a wrong spare takes too early: fence, read marker.
    """

    early: tuple[str, ...] = ()

    def _supervisor(self, state: State, name: str) -> Moves:
        spare = state.spare
        if spare is None:
            yield Event("supervisor", "warm up", whose=name), state._replace(spare=Spare())
        elif spare.told:
            has_epoch = spare.epoch != NEVER
            driver = Driver(state.noted + 1, has_epoch=has_epoch, epoch=spare.epoch, saw=spare.saw)
            after = state._replace(drivers=(*state.drivers, driver), spare=None)
            yield Event(name, "take over", driver.batch), after
        else:
            yield from self._hurries(state, spare, name)
            told = state._replace(spare=spare._replace(told=True))
            yield Event("supervisor", "hand over", whose=name), told

    def _hurries(self, state: State, spare: Spare, name: str) -> Moves:
        if "fence" in self.early and spare.epoch == NEVER:
            after, answer = with_new_epoch(end(state, "aborted"))
            yield Event(name, "fence", answer=answer), after._replace(spare=spare._replace(epoch=after.epoch))
        if "read marker" in self.early and not spare.saw:
            saw = spare._replace(saw=(state.marker,))
            yield Event(name, "read marker", answer=in_words(state.marker)), state._replace(spare=saw)

    def _driver(self, state: State, n: int, driver: Driver) -> Moves:
        """Let a spare that has read the marker too early go on with that marker."""
        step = self.wanted(state, driver)
        if driver.saw and step in READINGS:
            [marker] = driver.saw
            saw = () if step == "read marker" else driver.saw
            event = Event(f"driver {n + 1}", "read marker", driver.batch, answer="as it was before")
            yield event, self.goes_on(state, n, driver._replace(saw=saw), marker)
        else:
            yield from super()._driver(state, n, driver)

    def anomaly(self, state: State) -> str | None:
        """Name the anomaly: `usurped` if a spare fences a driver before it is told; or that of any stage."""
        spare = state.spare
        if spare and not spare.told and any(d.alive and NEVER < d.epoch < spare.epoch for d in state.drivers):
            return "usurped"
        return super().anomaly(state)


@dataclass(frozen=True)
class WithoutCheckpoint(Stage):
    """The next driver finds no checkpoint and starts a new query: at the earliest record, or behind the latest one."""

    restarts_from: Literal["earliest", "latest"] = "earliest"

    def _supervisor(self, state: State, name: str) -> Moves:
        """Start a new query. If it skips the planned records, the numbers of its batches go on."""
        planned = state.planned if self.restarts_from == "latest" else ()
        batch = len(planned)
        fresh = state._replace(drivers=(*all_gone(state.drivers), Driver(batch)), planned=planned, noted=batch - 1)
        event = Event("supervisor", "start anew", row=planned[-1] if planned else 0, whose=name)
        old = state.old_ends | frozenset(state.planned)
        fresh = fresh._replace(hole=False, checkpoint_note=None, query=state.query + 1, first=batch, old_ends=old)
        yield event, fresh


def without_checkpoint(stage: Stage, restarts_from: Literal["earliest", "latest"]) -> WithoutCheckpoint:
    """Return the same stage, in which no checkpoint is kept."""
    return WithoutCheckpoint(**{f.name: getattr(stage, f.name) for f in fields(Stage)}, restarts_from=restarts_from)
