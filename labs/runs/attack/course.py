"""The course of a run, and where orders disturb it.

Undisturbed, driver 1 takes step after step until all batches are noted. Of several drivers that could act, the one
that was started or woken last does. Where none can, each being dead, frozen or waiting for an answer that is held
or lost, the supervisor gives them up: it freezes what still lives and starts the next driver from the checkpoint. It
stops doing so when everything is noted, or when a driver that nobody had disturbed refuses to go on, or cannot.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

from labs.runs.attack.orders import AT_THE_END, Moment, Order
from labs.runs.attack.strikes import Turns, strike
from labs.runs.attack.watch import Watch, in_words
from labs.schedules.replay.bench import CannotPlay
from labs.schedules.replay.played_driver import Step
from labs.schedules.schedule import HELD, Event

DONE = "all batches are done"
MOST_FAILURES = 3  # of drivers that nobody had disturbed


class Waiting(NamedTuple):
    """What is still to be done for an order, and when. `arrival` is the request that then arrives, if one does."""

    order: Order
    at: Moment | None
    arrival: Event | None = None


class Course:
    """One run with its orders. `run` carries it out."""

    def __init__(self, watch: Watch, orders: Sequence[Order]):
        self._watch, self._player = watch, watch.player
        self._requests = [order for order in orders if order.request]
        self._waiting = [Waiting(order, order.at) for order in orders if not order.request]
        self._disturbed: set[str] = set()  # drivers in whose life an order was carried out
        self._turns = Turns(watch)
        self._times: Counter[tuple[str, Step]] = Counter()
        self._ended, self._failures = "", 0

    def run(self) -> str:
        """Carry everything out, and return what the last driver said. Raises CannotPlay, with the order's line."""
        while True:
            if turn := self._turns.next():
                self._turn(*turn)
            elif not (self._ended or self._all_noted):
                self._turns.start("start")
            elif late := next((each for each in self._waiting if each.at == AT_THE_END), None):
                self._act(late)
            else:
                break
        ended = DONE if self._all_noted else self._ended
        for order in sorted([*self._requests, *(each.order for each in self._waiting)], key=lambda each: each.line):
            why = f"its moment never came, and the run has ended: {in_words(ended)}"
            raise CannotPlay(f"{order} cannot be carried out: {why}")
        return ended

    # Whose turn it is

    @property
    def _all_noted(self) -> bool:
        return self._player.checkpoint.noted == self._player.stage.batches - 1

    def _turn(self, name: str, step: Step) -> None:
        """Let a driver take its next step, unless an order comes before it."""
        nth = self._times[name, step] + 1
        if due := self._due(name, step, nth, before=True):
            self._act(due)
            return
        event = Event(name, step.action, step.batch, step.row)
        if order := next((each for each in self._requests if self._meets(each.request, name, step, nth)), None):
            self._disturb_request(order, event)
            return
        event = self._watch.step(event)
        self._times[name, step] = nth
        if self._player.drivers[name].alive:
            self._after(name, step)
        elif name not in self._disturbed:
            self._ends_by_itself(name, event)

    def _ends_by_itself(self, name: str, event: Event) -> None:
        """Give up where the next driver would fare the same; a slow machine may fail once or twice in other ways."""
        if event.action in ("plan", "read marker"):
            self._ended = event.answer
            return
        self._failures += 1
        if self._failures == MOST_FAILURES:
            raise CannotPlay(f"{name} has ended by itself, and so have {MOST_FAILURES - 1} before it: {event.answer}")

    def _disturb_request(self, order: Order, event: Event) -> None:
        """Let a request be held, lost, or delivered now and once more at another time."""
        self._requests.remove(order)
        self._disturbed |= self._player.drivers.keys()
        self._watch.step(event._replace(answer=HELD))
        arrival = Event("network", "deliver", event.batch, event.row, request=event.action, whose=event.actor)
        if order.verb == "lose":
            self._watch.step(arrival._replace(action="lose"))
            return
        if order.verb == "repeat":
            self._arrives(arrival._replace(action="deliver again"))
        if order.at is None:
            self._watch.step(arrival)
        else:
            self._waiting.append(Waiting(order, order.at, arrival))

    def _arrives(self, arrival: Event) -> None:
        step = Step(arrival.request, arrival.batch, arrival.row)
        self._times[arrival.whose, step] += 1
        if self._watch.step(arrival).answer == "ok":
            self._after(arrival.whose, step)

    def _after(self, name: str, step: Step) -> None:
        while due := self._due(name, step, self._times[name, step], before=False):
            self._act(due)

    def _due(self, name: str, step: Step, nth: int, before: bool) -> Waiting | None:
        return next((each for each in self._waiting if self._meets(each.at, name, step, nth, before)), None)

    def _meets(self, moment: Moment | None, name: str, step: Step, nth: int, before: bool = False) -> bool:
        """Tell whether this is the step of a moment, the driver's `nth` of its kind."""
        if moment is None or moment.driver not in (None, int(name.split()[1])):
            return False
        planned, row = self._player.checkpoint.planned, None
        if step.row is not None:
            row = step.row - (planned[step.batch - 1] if step.batch else 0)
        meant = moment.step, moment.batch, moment.row, moment.nth, moment.before
        return meant == (step.action, step.batch, row, nth, before)

    # What orders do

    def _act(self, due: Waiting) -> None:
        """Do what an order says. Raises CannotPlay, with its line."""
        order, _, arrival = due
        self._waiting.remove(due)
        self._disturbed |= self._player.drivers.keys()
        self._ended = ""
        try:
            if arrival and order.verb == "hold":
                self._arrives(arrival)
            elif arrival:
                self._watch.step(arrival)
            else:
                strike(order, self._watch, self._turns)
        except CannotPlay as error:
            raise CannotPlay(f"{order} cannot be carried out: {str(error).splitlines()[0]}") from error
