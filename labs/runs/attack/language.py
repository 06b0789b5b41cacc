"""The language of the attack game: one order a line, each with its moment. `EXAMPLES` has one of every kind.

Batches and rows count from 0, a row within its batch; drivers count from 1. A moment is before or after a step of a
driver: of the driver that is named (`of driver 2`), else of the driver that is to be crashed or frozen, else of the
driver that takes the step first. An order that names a batch, a row, a driver or a step that does not exist is refused
before anything is started.

`in_orders` translates a schedule of the model into this language. Only a disturbance is an order. That the supervisor
gives up a driver which waits for an answer, and starts the next one, is part of the undisturbed run. Limitations: if
a program commits a batch twice, it names the first commit.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from labs.schedules.model.drivers_and_network import REQUESTS, Stage
from labs.schedules.schedule import HELD, PROGRAM, Event, Schedule, ScheduleError

EXAMPLES = (
    "crash driver 1 after the commit of batch 0",
    "freeze driver 1 before the commit of batch 0",
    "wake driver 1 after the plan of batch 0 of driver 2",
    "hold the commit of batch 0 until driver 2 plans batch 0",
    "repeat the commit of batch 0 after row 0 of batch 1",
    "lose row 1 of batch 0",
    "restore an older checkpoint after the commit of batch 0",
    "expire the marker after the commit of batch 0",
    "time out after row 0 of batch 1",
)
STEPS = {
    "plan": "plan",
    "epoch": "fence",
    "reading": "read marker",
    "row": "row",
    "marker": "marker",
    "commit": "commit",
    "note": "note",
}
VERBS = {
    "plans": "plan",
    "asks for the epoch of": "fence",
    "reads the marker of": "read marker",
    "sends the marker of": "marker",
    "commits": "commit",
    "notes": "note",
}
LONGEST = 160  # characters of an order
HELD_REQUESTS = ("fence", "row", "marker", "commit")  # requests that an order can hold, repeat or lose

DIGITS = "[0-9]{1,9}"  # enough for a driver, batch or row; Python refuses to read thousands of digits

NOUN = re.compile(
    r"(?:the )?(?:(?P<nth>first|second) )?(?P<step>plan|epoch|reading|row|marker|commit|note)"
    rf"(?: (?P<row>{DIGITS}))? of batch (?P<batch>{DIGITS})(?: of driver (?P<driver>{DIGITS}))?"
)
VERB = re.compile(
    rf"driver (?P<driver>{DIGITS}) (?:(?P<verb>{'|'.join(VERBS)})|sends row (?P<row>{DIGITS}) of)"
    rf" batch (?P<batch>{DIGITS})"
)
ORDER = re.compile(
    rf"(?P<verb>crash|freeze|wake) driver (?P<driver>{DIGITS})(?: (?P<when>.+))?"
    r"|(?P<carry>hold|repeat|lose) (?P<request>.+? of batch [0-9]+(?: of driver [0-9]+)?)(?: (?P<then>.+))?"
    r"|(?P<fault>restore an older checkpoint|expire the marker|time out)(?: (?P<at>.+))?"
)


class NoOrders(ScheduleError):
    """A schedule without orders."""


@dataclass(frozen=True)
class Moment:
    """A step of a driver, or of any driver if `driver` is None.

    `step` is None for the end, when no driver has a step left. `nth` counts the commits of a batch, for a
    program that has two.
    """

    step: str | None
    batch: int = 0
    row: int | None = None
    driver: int | None = None
    nth: int = 1
    before: bool = False


AT_THE_END = Moment(None)


@dataclass(frozen=True)
class Order:
    """One line of the player's schedule.

    `request` is the step whose request is held, repeated or lost. `at` is the moment of the order; None is the moment
    when the request is sent.
    """

    line: int
    text: str
    verb: str  # crash, freeze, wake, hold, repeat, lose, restore, expire, time
    driver: int | None = None
    request: Moment | None = None
    at: Moment | None = None

    def __str__(self) -> str:
        return f"line {self.line} ({self.text})"


def parse_orders(lines: Iterable[str]) -> list[Order]:
    """Read a schedule: one order a line, apart from empty lines and `#` comments. Raises ScheduleError, in one line."""
    orders = []
    for number, line in enumerate(lines, 1):
        if text := " ".join(line.partition("#")[0].split()):
            orders.append(_order(number, text))
    if not orders:
        raise NoOrders(f"the schedule has no orders; write some lines such as: {EXAMPLES[0]}")
    return orders


def _order(line: int, text: str) -> Order:
    if len(text) > LONGEST:  # longer than any order can be
        text = f"{text[:LONGEST]}…"
    said = text.lower().rstrip(". ")
    verb = said.partition(" ")[0]
    example = next((each for each in EXAMPLES if each.split()[0] == verb), None)
    if example is None:
        verbs = ", ".join(each.split()[0] for each in EXAMPLES)
        raise ScheduleError(f"line {line}: {text!r} is not an order; orders begin with {verbs}: {EXAMPLES[0]}")
    match = ORDER.fullmatch(said)
    if match is None:
        raise ScheduleError(f"line {line}: {text!r} is not understood; for example: {example}")
    verb = match["verb"] or match["carry"] or match["fault"].split()[0]
    driver = int(match["driver"]) if match["driver"] else None
    try:
        request = _step(match["request"]) if match["request"] else None
        if request and request.step not in HELD_REQUESTS:
            raise ValueError(
                f"{match['request']!r} cannot be held, repeated or lost; an epoch, a row, a marker or a commit can"
            )
        at = _moment(match["when"] or match["then"] or match["at"], verb)
    except ValueError as error:
        raise ScheduleError(f"line {line}: {error}; for example: {example}") from None
    if at and at.driver is None and verb in ("crash", "freeze"):
        at = Moment(at.step, at.batch, at.row, driver, at.nth, at.before)
    return Order(line, text, verb, driver, request, at)


def _moment(text: str | None, verb: str) -> Moment | None:
    """Read a moment. Raises ValueError."""
    words = ("until",) if verb == "hold" else ("before", "after")
    if verb == "lose" and text:
        raise ValueError(f"a lost request never arrives, so it has no moment such as {text!r}")
    if text is None:
        if verb in ("lose", "repeat"):
            return None
        raise ValueError(f"it does not say when: {' or '.join(words)} …")
    word, _, rest = text.partition(" ")
    if text in ("at the end", "until the end") and verb not in ("crash", "freeze"):
        return AT_THE_END
    if word not in words:
        raise ValueError(f"{text!r} is not a moment; a moment begins with {' or '.join(words)}")
    step = _step(rest)
    return Moment(step.step, step.batch, step.row, step.driver, step.nth, before=word == "before")


def _step(text: str) -> Moment:
    """Read the name of a step. Raises ValueError."""
    match = NOUN.fullmatch(text) or VERB.fullmatch(text)
    if match is None:
        raise ValueError(f"{text!r} is not a step of a driver")
    said = match.groupdict()
    step = STEPS[said["step"]] if said.get("step") else VERBS[said["verb"]] if said["verb"] else "row"
    if (step == "row") != (said["row"] is not None):
        raise ValueError(
            f"{text!r} {'does not say which row' if step == 'row' else 'names a row, which only the step row has'}"
        )
    if said.get("nth") and step != "commit":
        raise ValueError(f"{text!r}: only a commit can be the first or the second of its batch")
    row, driver = (int(said[key]) if said[key] else None for key in ("row", "driver"))
    return Moment(step, int(said["batch"]), row, driver, 2 if said.get("nth") == "second" else 1)


LANGUAGE = """\
Orders, one a line; what follows # is a comment. One example of each:

{examples}

A moment is before or after a step (plan, epoch, reading, row N, marker, commit or note) of a batch, and if need be of
a driver; or `at the end` (`until the end`), when no driver has a step left. Batches and rows count from 0,
drivers from 1. Driver 1 runs first. When every driver is crashed, frozen, or waits for an answer that does not come,
the supervisor starts the next one from the checkpoint. If a program commits twice, say `the second commit of batch 0`.
An older checkpoint lacks the newest batch; planned again, that batch has one record more, unless it is the last batch.
"""


def language() -> str:
    """Return the language of orders on one screen."""
    return LANGUAGE.format(examples="\n".join(f"    {each}" for each in EXAMPLES))


STARTS_ANOTHER = ("crash", "freeze", "hold", "lose", "restore", "time", "wake", "repeat")


def check_possible(orders: Sequence[Order], stage: Stage) -> None:
    """Raise ScheduleError, in one line, for the first order that no run of the stage could carry out."""
    starts = sum(order.verb in STARTS_ANOTHER for order in orders)
    restored = any(order.verb == "restore" for order in orders)
    for order in orders:
        drivers = [order.driver, *(moment.driver for moment in (order.request, order.at) if moment)]
        why = _impossible_driver([each for each in drivers if each is not None], 1 + starts)
        for moment in (order.request, order.at):
            if moment and moment.step:
                why = why or _impossible_step(moment, stage, rows=stage.rows + restored)
        if why is None and order.verb == "time" and not stage.transactional:
            why = "this sink has no transactions that could time out"
        elif why is None and order.verb == "time" and any(each.verb in ("hold", "lose") for each in orders):
            why = "with so short a timeout, clients send held or lost requests again; use time out, or hold and lose"
        elif why is None and order.verb == "expire" and "forget the marker" not in stage.faults:
            why = "no marker of this sink ever expires"
        if why:
            raise ScheduleError(f"{order} cannot be carried out: {why}")


def _impossible_driver(drivers: Sequence[int], most: int) -> str | None:
    if 0 in drivers:
        return "drivers count from 1"
    if max(drivers, default=1) > most:
        return f"nothing in these orders could make the supervisor start driver {max(drivers)}"
    return None


def _impossible_step(moment: Moment, stage: Stage, rows: int) -> str | None:
    name = next(noun for noun, action in STEPS.items() if action == moment.step)
    if moment.step not in ("plan", "note", *map(REQUESTS.get, stage.steps)):
        return f"no driver of this sink ever comes to a step {name!r}"
    if moment.batch >= stage.batches:
        return f"there is no batch {moment.batch}: the batches are {_listed(stage.batches)}"
    if moment.row is not None and moment.row >= rows:
        return f"there is no row {moment.row}: the rows of a batch are {_listed(rows)}"
    if moment.nth > 1 and stage.steps.count("commit") < 2:
        return "this sink commits a batch only once"
    return None


def _listed(count: int) -> str:
    return " and ".join([", ".join(map(str, range(count - 1))), str(count - 1)]) if count > 1 else "0"


NOUNS = {action: noun for noun, action in STEPS.items()}


def in_orders(schedule: Schedule) -> list[str]:
    """Return the orders. If the schedule has no disturbance, the one order is a crash after its last step."""
    spoken = _Spoken(schedule.events)
    return list(spoken.orders()) or [f"crash driver 1 {spoken.moment(len(schedule.events))}"]


class _Spoken:
    def __init__(self, events: tuple[Event, ...]):
        self._events = events

    def orders(self) -> Iterator[str]:
        """Yield the orders, sorted by their moments; the moment of a request is when it is sent."""
        for n, event in enumerate(self._events):
            if event.answer == HELD:
                yield self._on_its_way(n, event)
            elif event.action == "start" and not self._is_given_up(n):
                verb, name = self._who_is_gone(n)
                yield f"{verb} {name} {self.moment(n, of=name)}"
            elif event.action == "restore and start":
                yield f"restore an older checkpoint {self.moment(n)}"
            elif event.action == "wake":
                yield f"wake {event.actor} {self.moment(n, of='')}"
            elif event.action == "time out":
                yield f"time out {self.moment(n)}"
            elif event.action == "forget the marker":
                yield f"expire the marker {self.moment(n)}"

    def moment(self, n: int, of: str = "driver 1") -> str:
        """Return the moment of the n-th event: after the last step before it, or before the first step.

        A step is taken when its answer comes; if its request was held, when the request arrives. The moment names the
        driver, unless it is the driver `of`.
        """
        if step := self._taken(0, n):
            return f"after {self._noun(step, of)}"
        return f"before {self._noun(next(event for event in self._events[n:] if event.action in NOUNS), of)}"

    def _taken(self, start: int, end: int) -> Event | None:
        """Return the last step that was taken between the events `start` and `end`."""
        for event in reversed(self._events[start:end]):
            if event.request and event.action != "lose":
                return event._replace(actor=event.whose, action=event.request)
            if event.action in NOUNS and event.answer != HELD:
                return event
        return None

    def _on_its_way(self, n: int, sent: Event) -> str:
        """Return the order for a request that is not delivered at once: lose, hold or repeat."""
        what = sent.actor, sent.action, sent.batch, sent.row
        fate = [
            (k, event)
            for k, event in enumerate(self._events)
            if k > n and (event.whose, event.request, event.batch, event.row) == what
        ]
        if not fate or fate[0][1].action == "lose":
            return f"lose {self._noun(sent)}"
        (first, arrives), (last, _) = fate[0], fate[-1]
        if arrives.action != "deliver again":
            following = (event for event in self._events[first:] if event.action in NOUNS)
            until = self._taken(n + 1, first) or next(following, sent)  # a moment that has passed never comes again
            return f"hold {self._noun(sent)} until {self._noun(until)}"
        return f"repeat {self._noun(sent)}" + ("" if last <= first + 1 else f" {self.moment(last)}")

    def _is_given_up(self, n: int) -> bool:
        """Tell whether the driver that acted last waits for an answer: then the supervisor starts the next driver."""
        acted = [each for each in self._events[:n] if PROGRAM.fullmatch(each.actor) and each.action != "crash"]
        return bool(acted) and acted[-1].answer == HELD

    def _who_is_gone(self, n: int) -> tuple[str, str]:
        """Return (crash or freeze, driver) for the driver that does not act after the n-th event starts another one."""
        before = self._events[n - 1] if n else None
        if before and before.action == "crash":
            return "crash", before.actor
        acted = [each.actor for each in self._events[:n] if PROGRAM.fullmatch(each.actor)]
        return "freeze", acted[-1] if acted else "driver 1"

    def _noun(self, step: Event, of: str = "driver 1") -> str:
        """Return a driver's step in the words of an order."""
        row = "" if step.row is None or step.action != "row" else f" {step.row - self._begin(step.batch)}"
        whose = "" if step.actor == of else f" of {step.actor}"
        return f"{'' if row else 'the '}{NOUNS[step.action]}{row} of batch {step.batch}{whose}"

    def _begin(self, batch: int | None) -> int:
        """Return the first record of a batch, which follows the last one of the batch before."""
        if not batch:
            return 0
        planned = [each.row for each in self._events if each.action == "plan" and each.batch == batch - 1]
        return max(row for row in planned if row is not None) + 1
