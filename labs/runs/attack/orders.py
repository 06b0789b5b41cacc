"""The language of the attack game: one order a line, each with its moment. `EXAMPLES` has one of every kind.

Batches and rows count from 0, a row within its batch; drivers count from 1. A moment is a step of a driver, before or
after it: of the driver that is named (`of driver 2`), of the one that is to be crashed or frozen, or else of whichever
takes it first.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from labs.schedules.schedule import ScheduleError

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
REQUESTS = ("fence", "row", "marker", "commit")  # what the network can be told to hold, repeat or lose

DIGITS = "[0-9]{1,9}"  # no driver, batch or row needs more, and Python reads no number of thousands

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
    """A schedule in which nothing is ordered."""


@dataclass(frozen=True)
class Moment:
    """A step of a driver; of any, if `driver` is None. `step` is None at the end, when nobody has anything left to do.

    `nth` counts the commits of a batch, for a program that has two.
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
    """One line of the player's. `request` is the step whose request is held, repeated or lost; `at` is when to act,
    and None where that is at once: for a request, when it is sent."""

    line: int
    text: str
    verb: str  # crash, freeze, wake, hold, repeat, lose, restore, expire, time
    driver: int | None = None
    request: Moment | None = None
    at: Moment | None = None

    def __str__(self) -> str:
        return f"line {self.line} ({self.text})"


def parse_orders(lines: Iterable[str]) -> list[Order]:
    """Read a schedule: one order a line, empty lines and `#` comments aside. Raises ScheduleError, in one line."""
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
        raise ScheduleError(f"line {line}: {text!r} is no order; they begin with {verbs}: {EXAMPLES[0]}")
    match = ORDER.fullmatch(said)
    if match is None:
        raise ScheduleError(f"line {line}: {text!r} is not understood; for example: {example}")
    verb = match["verb"] or match["carry"] or match["fault"].split()[0]
    driver = int(match["driver"]) if match["driver"] else None
    try:
        request = _step(match["request"]) if match["request"] else None
        if request and request.step not in REQUESTS:
            raise ValueError(f"{match['request']!r} is no request to Kafka that could be on its way for long")
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
        raise ValueError(f"what is lost never arrives, so {text!r} says nothing")
    if text is None:
        if verb in ("lose", "repeat"):
            return None
        raise ValueError(f"it does not say when: {' or '.join(words)} …")
    word, _, rest = text.partition(" ")
    if text in ("at the end", "until the end") and verb not in ("crash", "freeze"):
        return AT_THE_END
    if word not in words:
        raise ValueError(f"{text!r} is no moment: it begins with {' or '.join(words)}")
    step = _step(rest)
    return Moment(step.step, step.batch, step.row, step.driver, step.nth, before=word == "before")


def _step(text: str) -> Moment:
    """Read the name of a step. Raises ValueError."""
    match = NOUN.fullmatch(text) or VERB.fullmatch(text)
    if match is None:
        raise ValueError(f"{text!r} is no step of a driver")
    said = match.groupdict()
    step = STEPS[said["step"]] if said.get("step") else VERBS[said["verb"]] if said["verb"] else "row"
    if (step == "row") != (said["row"] is not None):
        raise ValueError(f"{text!r} {'does not say which row' if step == 'row' else 'is about no row'}")
    if said.get("nth") and step != "commit":
        raise ValueError(f"{text!r}: only a commit can be the first or the second of its batch")
    row, driver = (int(said[key]) if said[key] else None for key in ("row", "driver"))
    return Moment(step, int(said["batch"]), row, driver, 2 if said.get("nth") == "second" else 1)
