"""A schedule: the steps of drivers, network, broker and supervisor in their order, with the answers.

It is plain data: the model finds it, a replay carries it out, and a diagram draws it. A request and its answer are one
event if nothing happens between them. Otherwise the request is `held`, and the network delivers it later.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

REQUESTS = ("fence", "read marker", "row", "marker", "commit", "abort")
OWN_STEPS = (
    *("plan", "note", "decide", "read", "write", "commit the offset", "write with the offset", "take over"),
    *("hand out", "give up", "count"),
)
STRIKES = ("crash", "freeze", "wake")  # what happens to a program
NETWORK = ("deliver", "deliver again", "lose", "lose the answer")
STARTS = (
    "start",
    "start at record",
    "restore and start",
    "start anew",
    "hand over",
)  # from then on the other drivers sleep or are dead
SUPERVISOR = (*STARTS, "warm up", "run again")
BROKER = ("time out", "forget the marker")
HELD = "held"
PROGRAM = re.compile(r"(driver|producer|consumer|task) \d+( again)?")  # an actor that can crash

WORDS = {
    "plan": "plans batch {batch}, up to record {row}",
    "fence": "asks for an epoch of its own",
    "read marker": "reads the marker",
    "row": "sends record {row} of batch {batch}",
    "marker": "sends the marker of batch {batch}",
    "commit": "commits batch {batch}",
    "abort": "aborts batch {batch}",
    "note": "notes in its checkpoint that batch {batch} is done",
    "decide": "notes the decision: batch {batch} is to be committed",
    "read": "reads record {row}",
    "write": "writes record {row}",
    "commit the offset": "commits its offset, behind record {row}",
    "write with the offset": "writes record {row} and its offset in one transaction",
    "crash": "crashes",
    "freeze": "is frozen",
    "wake": "wakes up",
    "start": "starts {whose} from the checkpoint, at batch {batch}",
    "start at record": "starts {whose}, at record {row}",
    "restore and start": "restores an older checkpoint and starts {whose} from it, at batch {batch}",
    "start anew": "starts {whose} with an empty checkpoint, at record {row}",
    "warm up": "keeps {whose} warm, which waits to be told",
    "hand over": "tells {whose} to take over",
    "take over": "reads its checkpoint, and takes over at batch {batch}",
    "hand out": "hands out batch {batch} to its tasks",
    "give up": "gives up, and reports that it has",
    "count": "counts what its tasks report of batch {batch}",
    "run again": "runs {whose}",
    "run the stage again": "runs those tasks of {whose} again that have not reported",
    "time out": "aborts the transaction, which has been open for too long",
    "forget the marker": "forgets the marker, which has expired",
}
OF_A_REQUEST = {
    "fence": "request for an epoch",
    "read marker": "question for the marker",
    "row": "record {row} of batch {batch}",
    "marker": "marker of batch {batch}",
    "commit": "commit of batch {batch}",
    "abort": "abort of batch {batch}",
}


class ScheduleError(ValueError):
    """A schedule with an impossible step, or an impossible protocol. The message says which and why."""


class Event(NamedTuple):
    """One step. `actor`: "driver 1", "task 2", "consumer 1", "network", "broker" or "supervisor".

    `batch` and `row` count from 0. `request` and `whose` are the request that the network delivers, and its sender;
    `whose` is also the driver that the supervisor starts. `answer` is what came back. `sees` are the records that a
    read_committed reader sees afterwards, if the step has changed that. `sequence` is an idempotent producer's number.
    """

    actor: str
    action: str
    batch: int | None = None
    row: int | None = None
    epoch: int | None = None
    answer: str = ""
    request: str = ""
    whose: str = ""
    sees: tuple[int, ...] | None = None
    sequence: int | None = None

    def __str__(self) -> str:
        if self.actor == "network":
            verb = {"deliver": "delivers", "deliver again": "delivers once more", "lose": "loses"}.get(self.action)
            verb = verb or "delivers, and loses the answer to,"
            what = f"{verb} {self.whose}'s {filled(OF_A_REQUEST[self.request], self)}"
        else:
            what = filled(WORDS[self.action], self)
        epoch = f" (epoch {self.epoch})" if self.epoch is not None and self.epoch >= 0 else ""
        sequence = f" (sequence number {self.sequence})" if self.sequence is not None and self.sequence >= 0 else ""
        return f"{self.actor} {what}{epoch}{sequence}" + (f": {self.answer}" if self.answer else "")


def filled(words: str, event: Event) -> str:
    """Fill an event's fields into words about it, without the parts whose fields the event lacks."""
    if event.row is None:
        words = words.removesuffix(", up to record {row}")
    if event.batch is None:
        for batch in (" from the checkpoint, at batch {batch}", " at batch {batch}", " of batch {batch}"):
            words = words.removesuffix(batch)
        words = {"commits batch {batch}": "commits", "aborts batch {batch}": "aborts"}.get(words, words)
    return words.format(**event._asdict())


class Schedule(NamedTuple):
    """The events of a stage in their order, and the anomaly that they show, if any."""

    stage: str
    events: tuple[Event, ...]
    anomaly: str | None = None

    def __str__(self) -> str:
        lines = [f"{n:3}. {event}" for n, event in enumerate(self.events, 1)]
        return "\n".join([f"{self.stage}: {self.anomaly or 'no anomaly'}", *lines])

    def to_json(self) -> str:
        """Return the schedule as JSON, without the fields that an event lacks."""
        events = [{k: v for k, v in event._asdict().items() if v not in (None, "")} for event in self.events]
        return json.dumps({"stage": self.stage, "anomaly": self.anomaly, "events": events}, indent=1)

    @classmethod
    def from_json(cls, text: str) -> Schedule:
        """Read what `to_json` wrote. Raises ScheduleError."""
        try:
            fields: dict[str, Any] = json.loads(text)
            listed, stage, anomaly = list(fields["events"]), fields["stage"], fields.get("anomaly")
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
            raise ScheduleError('a schedule is JSON: {"stage": …, "anomaly": …, "events": [{…}, …]}') from None
        events = tuple(_event(n, each) for n, each in enumerate(listed, 1))
        check_order(events)
        return cls(stage, events, anomaly)


def _event(n: int, fields: Any) -> Event:
    if not isinstance(fields, dict) or not {"actor", "action"} <= fields.keys() <= set(Event._fields):
        raise ScheduleError(f"step {n}: an event has an actor, an action, and may have {', '.join(Event._fields[2:])}")
    event = Event(**fields)
    sees = [] if event.sees is None else event.sees
    numbers = [each for each in (event.batch, event.row, event.epoch, event.sequence) if each is not None]
    if not isinstance(sees, list) or any(type(each) is not int for each in (*numbers, *sees)):
        raise ScheduleError(f"step {n}: batch, row, epoch and sequence are whole numbers, and sees is a list of them")
    if event.sees is not None:
        event = event._replace(sees=tuple(sees))
    actor = "program" if PROGRAM.fullmatch(str(event.actor)) else event.actor
    known = {"program": REQUESTS + OWN_STEPS + STRIKES, "network": NETWORK, "broker": BROKER}
    known["supervisor"] = (*SUPERVISOR, "run the stage again")
    if actor not in known:
        raise ScheduleError(f"step {n}: there is no actor {event.actor!r}; there are driver 1, driver 2, …, network, …")
    if event.action not in known[actor]:
        raise ScheduleError(f"step {n}: {event.actor} cannot {event.action!r}; it can: {', '.join(known[actor])}")
    if actor == "network" and (event.request not in REQUESTS or not PROGRAM.fullmatch(str(event.whose))):
        raise ScheduleError(f"step {n}: the network delivers a program's request: one of {', '.join(REQUESTS)}")
    return event


def check_order(events: Sequence[Event]) -> None:
    """Raise ScheduleError if a program acts before it is started, or a request arrives that was not sent."""
    held = set()
    started = {each.actor for each in events if re.fullmatch(r"(driver|producer|consumer) 1|task \d+", each.actor)}
    for n, event in enumerate(events, 1):
        if event.action == "run the stage again":
            started |= {each.actor for each in events if each.actor.endswith(" again")}
        elif event.action in SUPERVISOR:
            started.add(event.whose)
        elif PROGRAM.fullmatch(event.actor) and event.actor not in started:
            raise ScheduleError(f"step {n}: {event.actor} was not started")
        request = (event.whose, event.request, event.batch, event.row)
        if event.action in REQUESTS:
            held.add((event.actor, event.action, event.batch, event.row))
        elif event.actor == "network" and request not in held:
            what = OF_A_REQUEST[event.request].format(**event._asdict())
            raise ScheduleError(f"step {n}: {event.whose} has not sent its {what}")


def compact(moves: Iterable[Event]) -> tuple[Event, ...]:
    """Make one event of each request that is delivered at once, and add the crashes and awakenings.

    A program that does nothing after another was started has crashed. If it does something later, it was asleep.
    """
    events: list[Event] = []
    for move in moves:
        last = events[-1] if events else None
        if (
            last is not None
            and last.answer == HELD
            and move.action == "deliver"
            and (last.actor, last.action, last.batch, last.row) == (move.whose, move.request, move.batch, move.row)
        ):
            events[-1] = last._replace(answer=move.answer, sees=move.sees)
        else:
            events.append(move._replace(answer=HELD) if move.action in REQUESTS and not move.answer else move)
    return tuple(_with_crashes(events))


def _with_crashes(events: list[Event]) -> Iterable[Event]:
    asleep: set[str] = set()
    for n, event in enumerate(events):
        if event.action in STARTS:
            for actor in sorted({e.actor for e in events[:n] if PROGRAM.fullmatch(e.actor)} - {event.whose} - asleep):
                asleep.add(actor)
                if all(later.actor != actor for later in events[n:]):
                    yield Event(actor, "crash")
        elif event.actor in asleep:
            asleep.discard(event.actor)
            yield Event(event.actor, "wake")
        yield event
