"""The course of two batches when one thing goes wrong: the model carries it out, step by step.

`Switches` switch mechanisms on and off; together they choose the stage of the model. A request arrives at once. Either
the driver crashes at a place (after a step of a batch, or amid its rows) and another one starts; or the last answer
before that place is lost, so that the request comes a second time.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Iterator
from functools import lru_cache
from itertools import product
from typing import NamedTuple

from exactly_once_kafka.points import AFTER_COMMIT, BEFORE_CHECKPOINT, BEFORE_COMMIT, BEFORE_ROWS, MID_ROWS
from exactly_once_kafka.protocol import Batch, Protocol, is_published
from labs.schedules.model.drivers_and_network import Stage, without_checkpoint
from labs.schedules.model.state import BatchProtocol, State, with_driver
from labs.schedules.schedule import REQUESTS, SUPERVISOR, Event

BATCHES, ROWS = 2, 4  # a crash in the middle of a batch leaves half of its rows
STATIONS = ("read", "plan", "compute", "begin", "rows", "marker", "commit", "note")
# The model has no steps for "read" (how far the source is) and "compute", which write nothing.
STATION_OF = {"plan": 1, "fence": 3, "read marker": 3, "rows": 4, "row": 4, "marker": 5, "commit": 6, "note": 7}
ROWS_STATION = STATIONS.index("rows")
POINTS = {
    "begin": (BEFORE_ROWS,),
    "half": (MID_ROWS,),
    "marker": (BEFORE_COMMIT,),
    "commit": (AFTER_COMMIT, BEFORE_CHECKPOINT),
}


class Place(NamedTuple):
    """A place after a station of a batch; "half" is amid the rows. `reached` is the first step after it."""

    batch: int
    station: str
    reached: tuple[int, int, int]  # batch, station, record of the batch

    @property
    def points(self) -> tuple[str, ...]:
        return POINTS.get(self.station, ())

    @property
    def name(self) -> str:
        where = "amid the rows" if self.station == "half" else f"after {self.station}"
        points = f" ({', '.join(self.points)})" if self.points else ""
        return f"batch {self.batch}, {where}{points}"

    @property
    def at(self) -> float:
        """Where it is on the timeline: from 0 to 1. All steps are equally long."""
        steps = ROWS_STATION + 0.5 if self.station == "half" else STATIONS.index(self.station) + 1
        return (self.batch * len(STATIONS) + steps) / (BATCHES * len(STATIONS))


def _places() -> tuple[Place, ...]:
    found = []
    for batch in range(BATCHES):
        for n, station in enumerate(STATIONS):
            if n == ROWS_STATION:
                found.append(Place(batch, "half", (batch, n, ROWS // 2)))
            found.append(Place(batch, station, (batch, n + 1, 0)))
    return tuple(found)


PLACES = _places()


class Switches(NamedTuple):
    """Which mechanisms are on. Transactions need idempotence; `latest` matters only without a checkpoint."""

    checkpoint: bool = True
    latest: bool = False
    idempotence: bool = True
    transaction: bool = True
    marker: bool = True
    read_committed: bool = True

    @property
    def effective(self) -> Switches:
        """What is on in effect: a transaction switches idempotence on, and a checkpoint switches `latest` off."""
        return self._replace(
            latest=self.latest and not self.checkpoint, idempotence=self.idempotence or self.transaction
        )

    @property
    def key(self) -> str:
        """0 or 1 for each switch, in their order."""
        return "".join(str(int(each)) for each in self)

    @property
    def stage(self) -> Stage:
        """The stage of the model in which just these are on, without faults."""
        on = self.effective
        stage = Stage(
            f"timeline {self.key}",
            _protocol(on.transaction, on.marker),
            idempotent=on.idempotence,
            batches=BATCHES,
            rows=ROWS,
            faults=(),
        )
        return stage if on.checkpoint else without_checkpoint(stage, "latest" if on.latest else "earliest")


@functools.cache
def _protocol(transaction: bool, marker: bool) -> BatchProtocol:
    """Return the shortest protocol with these mechanisms."""

    def protocol(batch: Batch, has_epoch: bool) -> Protocol:
        if transaction:
            yield "fence"
        if marker and is_published((yield "read marker"), batch):
            yield "drain"
            return
        yield "rows"
        if marker:
            yield "marker"
        if transaction:
            yield "commit"

    return protocol


LABELS = {
    "checkpoint": ("checkpoint", "the restart finds offsets/ and commits/"),
    "latest": (
        "restart from latest",
        "without a checkpoint: skip the present records, instead of reading all of them again",
    ),
    "idempotence": ("idempotent producer", "Kafka recognises a repeated record by its sequence number"),
    "transaction": ("transaction", "a batch is published as a whole or not at all; needs the idempotent producer"),
    "marker": ("marker", "the sink writes with the rows which batch they are, and a restart reads that"),
    "read_committed": ("read_committed", "the reader skips the records of aborted and open transactions"),
}
# The stages of the course by their names in the model, and two without a checkpoint.
PRESETS = {
    "no checkpoint": Switches(False, False, False, False, False),
    "start from latest": Switches(False, True, False, False, False),
    "at least once": Switches(True, False, False, False, False),
    "idempotent producer": Switches(True, False, True, False, False),
    "transactions, no marker": Switches(marker=False),
    "the sink": Switches(),
}


def every_switching() -> Iterator[Switches]:
    """Yield every combination."""
    for on in product((False, True), repeat=len(Switches._fields)):
        yield Switches(*on)


CRASH, LOST_ACKNOWLEDGEMENT = "crash", "lost acknowledgement"
FAULTS = (CRASH, LOST_ACKNOWLEDGEMENT)
AGAIN = "deliver again"  # in the model's words


class Moment(NamedTuple):
    """An event, and the model's state after it."""

    event: Event
    state: State


class Course(NamedTuple):
    """The moments up to the fault, which is the last of `before`, and those after it, until nothing moves any more."""

    stage: Stage
    fault: str
    place: Place
    before: tuple[Moment, ...]
    after: tuple[Moment, ...]

    @property
    def broken(self) -> State:
        """The state just after the fault."""
        return self.before[-1].state if self.before else self.stage.start()

    @property
    def is_disturbed(self) -> bool:
        """Whether the fault happened: a crash always does, but there may be no acknowledgement to lose."""
        return self.fault == CRASH or any(event.action == AGAIN for event, _ in self.before[-1:])

    @property
    def end_of_first(self) -> int:
        """The last batch in commits/ at the fault; -1 for none."""
        return self.broken.noted

    @property
    def finds_its_marker(self) -> bool:
        """Whether the restart finds that the batch in flight is published."""
        batch = self.end_of_first + 1
        return any((e.request, e.batch, e.answer) == ("read marker", batch, f"batch {batch}") for e, _ in self.after)

    @property
    def end(self) -> State:
        return (self.before + self.after)[-1].state


def course_of(switches: Switches, fault: str, place: int) -> Course:
    """Return what happens with these switches if `fault` happens at the place of this number."""
    return _course(switches.effective._replace(read_committed=True), fault, PLACES[place])


@lru_cache(maxsize=4096)
def _course(switches: Switches, fault: str, place: Place) -> Course:
    stage = switches.stage
    if fault == LOST_ACKNOWLEDGEMENT:
        stage = dataclasses.replace(stage, faults=(AGAIN,), drivers=1)
    state, before = stage.start(), list[Moment]()
    while (move := _next(stage, state, place)) and not (fault == CRASH and _reaches(stage, state, place)):
        before.append(Moment(*move))
        state = before[-1].state
        if before[-1].event.action == AGAIN:
            break
    if fault == CRASH:
        state = with_driver(state, 0, state.drivers[0]._replace(alive=False))
        before.append(Moment(Event("driver 1", "crash"), state))
        [start] = [Moment(*move) for move in stage.moves(state) if move[0].action in SUPERVISOR]
        after = [start]
        state = start.state
    else:
        after = []
    while move := _next(stage, state, place):
        after.append(Moment(*move))
        state = after[-1].state
    return Course(stage, fault, place, tuple(before), tuple(after))


def _next(stage: Stage, state: State, place: Place) -> tuple[Event, State] | None:
    """Return the next move: a second delivery of the request just before the place if it is allowed, else no fault."""
    quiet = None
    for event, following in stage.moves(state):
        if event.action == AGAIN and _is_last_before(event, place):
            return event, following
        if not quiet and event.action not in (AGAIN, *SUPERVISOR):
            quiet = event, following
        if quiet and not stage.faults:
            return quiet
    return quiet


def _reaches(stage: Stage, state: State, place: Place) -> bool:
    """Tell whether the first driver's next step comes after the place."""
    driver = state.drivers[0]
    return not state.net and (driver.batch, STATION_OF[stage.wanted(state, driver)], driver.row) >= place.reached


def _is_last_before(event: Event, place: Place) -> bool:
    """Tell whether a request is a write to Kafka, whose answer may be lost, and the last one before the place."""
    assert event.request in REQUESTS
    if event.request not in ("row", "marker", "commit"):
        return False
    here = (event.batch, STATION_OF[event.request])
    if event.request == "row":
        row = (event.row or 0) % ROWS + 1
        return place.station in ("half", "rows") and here == (place.batch, 4) and row == (place.reached[2] or ROWS)
    return here == (place.batch, place.reached[1] - 1) and place.station == event.request
