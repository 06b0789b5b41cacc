"""An attack on a stage, by the player's orders or the model's shortest schedule, on the real Kafka.

Undisturbed, driver 1 takes step after step until all batches are in the checkpoint's commit log. Where several drivers
could act, the one that was started or woken last acts. Where none can (each is dead, frozen, or waits for an answer
that is held or lost), the supervisor freezes the drivers that still live and starts the next one from the checkpoint.
The run ends when every batch is noted, or when a driver that no order has disturbed refuses or cannot plan. Every step
is recorded. The auditor judges at the end and, if the stage has transactions, whenever a reader sees something new.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import NamedTuple

from labs.evidence.auditor.anomalies import Anomaly
from labs.evidence.auditor.audit import Audit, audit
from labs.evidence.readers.results import read_visible
from labs.runs.attack.language import AT_THE_END, Moment, Order, check_possible
from labs.schedules.model.checker import explore
from labs.schedules.model.drivers_and_network import Stage
from labs.schedules.replay.counterexample import judge, keys
from labs.schedules.replay.driver import Step
from labs.schedules.replay.player import Player
from labs.schedules.replay.replay_bench import CannotPlay, ReplayBench
from labs.schedules.schedule import HELD, Event, Schedule


class Turns:
    """The drivers, in the order in which they were started or woken. The last one that can act has the turn."""

    def __init__(self, watch: Watch):
        self._watch, self._player = watch, watch.player
        self._names = ["driver 1"]

    def next(self) -> tuple[str, Step] | None:
        """Return the driver whose turn it is and its next step, or None if no driver can take one."""
        for name in reversed(self._names):
            step = self._player.upcoming(name)
            if step and step.action != "end":
                return name, step
        return None

    def start(self, action: str) -> None:
        """Freeze all drivers and start the next one from the checkpoint, or kill them and start from an older one."""
        name = f"driver {len(self._player.drivers) + 1}"
        batch = self._player.checkpoint.noted + 1 if action == "start" else None
        self._watch.step(Event("supervisor", action, batch, whose=name))
        self._names.append(name)

    def wake(self, name: str) -> None:
        """Wake a frozen driver, and give it the turn."""
        self._watch.step(Event(name, "wake"))
        self._names.remove(name)
        self._names.append(name)


def strike(order: Order, watch: Watch, turns: Turns) -> None:
    """Carry out an order that is not about a request. Raises CannotPlay if it is not possible now."""
    if order.driver:
        _strike_driver(order.verb, f"driver {order.driver}", watch, turns)
    elif order.verb == "restore":
        newest = len(watch.player.checkpoint.planned) - 1
        if newest < 0:
            raise CannotPlay("nothing is in the checkpoint yet, so there is no older one")
        if newest == watch.player.stage.batches - 1:
            watch.remarks.append(
                f"{order}: batch {newest} is the last, and the source has no more: planned again, it is the same"
            )
        turns.start("restore and start")
    elif order.verb == "time":
        if not _is_open(watch.events, "row", "marker"):
            raise CannotPlay("no transaction is open then")
        watch.step(Event("broker", "time out"))
    else:
        if not any(event.action == "marker" for event in watch.events) or _is_open(watch.events, "marker"):
            raise CannotPlay("no marker is committed then, so none can expire")
        watch.step(Event("broker", "forget the marker"))


def _strike_driver(verb: str, name: str, watch: Watch, turns: Turns) -> None:
    driver = watch.player.drivers.get(name)
    if driver is None or not driver.alive:
        raise CannotPlay(f"{name} {'has ended' if driver else 'was not started'} by then")
    if verb == "crash":
        watch.step(Event(name, "crash"))
    elif driver.asleep == (verb == "freeze"):
        raise CannotPlay(f"{name} is {'frozen already' if driver.asleep else 'not frozen'} then")
    elif verb == "freeze":
        watch.step(Event(name, "freeze"))
    else:
        turns.wake(name)


def _is_open(events: list[Event], *parts: str) -> bool:
    """Tell whether one of these requests was answered since the last transaction ended."""
    for event in reversed(events):
        request = event.request or event.action
        if request == "time out" or (request == "fence" and event.answer == "ok"):
            return False
        if event.answer == "ok" and request in (*parts, "commit"):
            return request != "commit"
    return False


class Judged(NamedTuple):
    """What the auditor found after a step, or at the end, where `step` is None: anomaly -> how many."""

    step: int | None
    counts: dict[Anomaly, int]

    def __str__(self) -> str:
        when = "at the end" if self.step is None else f"after step {self.step}"
        return f"{when}: {', '.join(f'{times} {_name(anomaly)}' for anomaly, times in self.counts.items())}"


class AttackOutcome(NamedTuple):
    """The outcome of an attack.

    `happened` has every step with its answer, `judged` the errors that the auditor found, `ended` how the last driver
    ended. `remarks` name orders that could not have the effect that they are meant for.
    """

    happened: Schedule
    judged: tuple[Judged, ...]
    ended: str
    remarks: tuple[str, ...] = ()

    @property
    def broken(self) -> bool:
        return bool(self.judged)


class Watch:
    """Takes the steps of a run through a player, and lets the auditor judge. `progress` gets the number of steps."""

    def __init__(self, player: Player, progress: Callable[[int], object]):
        self.player, self.events, self.remarks = player, list[Event](), list[str]()
        self._progress, self._judged = progress, list[Judged]()

    def step(self, event: Event) -> Event:
        """Carry out one step and return it with its answer. Raises CannotPlay."""
        event = self.player.step(event, len(self.events) + 1)
        planned, batch = self.player.checkpoint.planned, event.batch
        if event.action == "plan" and batch is not None and batch < len(planned):
            event = event._replace(row=planned[batch] - 1)
        if event.action == "restore and start":
            event = event._replace(batch=self.player.checkpoint.noted + 1)
        self.events.append(event)
        self._progress(len(self.events))
        # Without transactions, half a batch may be visible for a moment without harm; the audit at the end judges it.
        if event.sees is not None and self.player.stage.transactional:
            self._note(self._audit_what_is_visible(), len(self.events))
        return event

    def outcome(self, ended: str) -> AttackOutcome:
        """End the run, in which the last driver said `ended`, and let the auditor judge all of it.

        A driver that finds a marker which does not fit refuses to continue, so the batches that it leaves out are not
        lost. The batches that the checkpoint notes as done must still be there.
        """
        self._note(judge(self.player, all_of_it=not is_refusal(ended)), None)
        named = dict.fromkeys(_name(anomaly) for each in self._judged for anomaly in each.counts)
        schedule = Schedule(self.player.stage.name, tuple(self.events), ", ".join(named) or None)
        return AttackOutcome(schedule, tuple(self._judged), in_words(ended), tuple(self.remarks))

    def _audit_what_is_visible(self) -> Audit:
        """Audit what is visible now: each batch that is visible must be whole, and nothing may be there twice."""
        results = read_visible(self.player.direct, self.player.topic)
        expected = {(result.window_start, result.ip) for result in results}
        begin = 0
        for end in self.player.checkpoint.planned:
            whole = keys(range(begin, end))
            expected |= whole if whole & expected else set()
            begin = end
        return audit(dict.fromkeys(expected, 1), results)

    def _note(self, judged: Audit, step: int | None) -> None:
        errors = {anomaly: times for anomaly, times in judged.counts.items() if anomaly.is_error}
        if errors and (not self._judged or self._judged[-1].counts != errors):
            self._judged.append(Judged(step, errors))


def is_refusal(ended: str) -> bool:
    """Tell whether a driver ended because of a marker that does not fit: then `ended` is that marker."""
    return ended == "none" or ended.startswith("batch ")


def in_words(ended: str) -> str:
    """Return what the last driver said as a sentence."""
    return f"it refuses to go on: the marker says {ended}, which does not fit" if is_refusal(ended) else ended


def _name(anomaly: Anomaly) -> str:
    return anomaly.name.lower().replace("_", " ")


DONE = "all batches are done"
MOST_FAILURES = 3  # of drivers that no order had disturbed


class Waiting(NamedTuple):
    """An order that is still to be carried out, and its moment. `arrival` is the request that arrives then, if any."""

    order: Order
    at: Moment | None
    arrival: Event | None = None


class Course:
    """One run with its orders. `run` carries it out."""

    def __init__(self, watch: Watch, orders: Sequence[Order]):
        self._watch, self._player = watch, watch.player
        self._requests = [order for order in orders if order.request]
        self._waiting = [Waiting(order, order.at) for order in orders if not order.request]
        self._disturbed: set[str] = set()  # drivers that existed when an order was carried out
        self._turns = Turns(watch)
        self._times: Counter[tuple[str, Step]] = Counter()
        self._ended, self._failures = "", 0

    def run(self) -> str:
        """Carry out all orders, and return what the last driver said. Raises CannotPlay, with the order's line."""
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
        """End the run if the next driver would fail in the same way; on a slow machine, one or two may fail anyway."""
        if event.action in ("plan", "read marker"):
            self._ended = event.answer
            return
        self._failures += 1
        if self._failures == MOST_FAILURES:
            raise CannotPlay(f"{name} has ended by itself, and so have {MOST_FAILURES - 1} before it: {event.answer}")

    def _disturb_request(self, order: Order, event: Event) -> None:
        """Hold a request, lose it, or deliver it now and a second time later."""
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
        """Carry out an order that is due. Raises CannotPlay, with its line."""
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


def attack(
    stage: Stage, orders: Sequence[Order], bench: ReplayBench, progress: Callable[[int], object] = lambda _: None
) -> AttackOutcome:
    """Carry out the orders; the rest of the run is undisturbed, to its end. `progress` is told the steps taken so far.

    Raises ScheduleError for an order that no run of the stage could carry out, and CannotPlay for an order whose moment
    does not come, or that is not possible at its moment; both messages are one line and name the order. Raises
    CannotPlay also if undisturbed drivers fail, or a step cannot be carried out.
    """
    check_possible(orders, stage)
    with Player(stage, bench, expires=any(order.verb == "time" for order in orders)) as player:
        watch = Watch(player, progress)
        return watch.outcome(Course(watch, orders).run())


def solve(stage: Stage, bench: ReplayBench, progress: Callable[[int], object] = lambda _: None) -> AttackOutcome:
    """Carry out what the model finds, and let an undisturbed driver finish. Raises CannotPlay."""
    found = explore(stage).schedule
    with Player(stage, bench, expires=any(event.action == "time out" for event in found.events)) as player:
        watch = Watch(player, progress)
        for event in found.events:
            watch.step(event)
        return watch.outcome(player.finish())
