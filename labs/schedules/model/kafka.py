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
from typing import ClassVar

from labs.schedules.model.broker import carried_out
from labs.schedules.model.driver import acts, decides, hears, next_step
from labs.schedules.model.luck import LUCK
from labs.schedules.model.properties import anomaly, ending
from labs.schedules.model.state import NEVER, Driver, Marker, Request, State, spent
from labs.schedules.schedule import Event, ScheduleError

STEPS = ("plan", "fence", "read marker", "rows", "marker", "commit", "note")


@dataclass(frozen=True)
class Stage:
    """How batches are written, and what may go wrong; the bounds within which everything is tried.

    `keeps_epoch`: it is asked for once, not for each batch; `epoch_by_commit`: Kafka gives a new one with each commit
    (KIP-890). `marker_says_plan`, not its number alone. `drains`: a batch that is skipped is computed nevertheless.
    """

    name: str
    program: tuple[str, ...]
    idempotent: bool = True
    keeps_epoch: bool = False
    epoch_by_commit: bool = False
    marker_says_plan: bool = True
    drains: bool = True
    batches: int = 2
    rows: int = 2
    drivers: int = 2
    luck: tuple[str, ...] = ("deliver again", "lose", "time out")

    steps: ClassVar[tuple[str, ...]] = STEPS  # of which a program is made

    def __post_init__(self) -> None:
        unknown = [step for step in self.program if step not in self.steps]
        if unknown:
            raise ScheduleError(f"there is no step {unknown[0]!r}; there are: {', '.join(self.steps)}")
        if self.program[:1] != ("plan",):
            raise ScheduleError('a batch begins with "plan": nobody knows before that what is in it')

    @property
    def transactional(self) -> bool:
        return "commit" in self.program

    def start(self) -> State:
        return State(luck=self.luck)

    def moves(self, state: State) -> Iterator[tuple[Event, State]]:
        """Yield what the network can do first: of schedules of one length, it delays the least in the one found."""
        for request in state.net:
            yield from self._network(state, request)
        yield from self._executors(state)
        for n, driver in enumerate(state.drivers):
            if driver.alive and not driver.waiting and driver.batch < self.batches and not state.refused:
                yield from self._driver(state, n, driver)
        for what in state.luck:
            if what in LUCK:
                yield from LUCK[what](self, spent(state, what))
        if len(state.drivers) < self.drivers and not state.refused:
            yield from self._supervisor(state, f"driver {len(state.drivers) + 1}")

    def _executors(self, state: State) -> Iterator[tuple[Event, State]]:
        """Yield what executors do: nothing, where the driver writes."""
        return iter(())

    def _network(self, state: State, request: Request) -> Iterator[tuple[Event, State]]:
        gone = state._replace(net=state.net - {request})
        yield self._arrives(gone, request, "deliver")
        if "deliver again" in state.luck and not request.copy:
            again = spent(gone, "deliver again")._replace(net=gone.net | {request._replace(copy=True)})
            yield self._arrives(again, request, "deliver again")
        if "lose" in state.luck and not request.copy:
            yield request.carried("lose"), spent(gone, "lose")

    def _arrives(self, state: State, request: Request, action: str) -> tuple[Event, State]:
        """Let Kafka carry out a request, and its driver hear the answer if it still waits for it."""
        state, answer = carried_out(self, state, request)
        if state.drivers[request.driver].alive and not request.copy:
            state = self._hears(state, request.driver, request, answer)
        return request.carried(action, answer), state

    def _driver(self, state: State, n: int, driver: Driver) -> Iterator[tuple[Event, State]]:
        if self.program[driver.step] == "fence" and self.keeps_epoch and driver.epoch != NEVER:
            driver = next_step(self, driver)
        yield acts(self, state, n, driver)

    def _supervisor(self, state: State, name: str) -> Iterator[tuple[Event, State]]:
        batch = state.noted + 1
        yield Event("supervisor", "start", batch, whose=name), state._replace(drivers=(*state.drivers, Driver(batch)))

    def _hears(self, state: State, n: int, request: Request, answer: str) -> State:
        return hears(self, state, n, request, answer) if state.drivers[n].waiting else state

    def decides(self, state: State, n: int, driver: Driver, marker: Marker | None) -> State:
        return decides(self, state, n, driver, marker)

    def anomaly(self, state: State) -> str | None:
        return anomaly(self, state)

    def ending(self, state: State) -> Iterator[tuple[Event, State]]:
        return ending(self, state)

    def visible(self, state: State) -> tuple[int, ...]:
        """Return the committed records, in the order of the topic."""
        return tuple(record for record, _, status in state.log if status == "committed")
