"""A schedule of the model's in the game's own language: the orders by which a player would bring it about.

Only what disturbs a run is an order. That a driver is given up which waits for an answer, and that the next one starts,
is the supervisor's undisturbed course. Where it stops: of two commits of a batch, it means the first.
"""

from __future__ import annotations

from collections.abc import Iterator

from labs.runs.attack.orders import STEPS
from labs.schedules.schedule import HELD, PROGRAM, Event, Schedule

NOUNS = {action: noun for noun, action in STEPS.items()}


def in_orders(schedule: Schedule) -> list[str]:
    """Return the orders, one at least: what only shows when everybody is gone takes a crash after the last step."""
    spoken = _Spoken(schedule.events)
    return list(spoken.orders()) or [f"crash driver 1 {spoken.moment(len(schedule.events))}"]


class _Spoken:
    def __init__(self, events: tuple[Event, ...]):
        self._events = events

    def orders(self) -> Iterator[str]:
        """Yield the orders in the order in which they have their moments, a request's where it is sent."""
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
        """Return the moment of the n-th event: after the step before it that a driver has taken, or before the first.

        A step is taken when its answer comes: that of a request that was held, when it arrives. Without a word whose it
        is, the step is understood to be that of the driver `of`.
        """
        if step := self._taken(0, n):
            return f"after {self._noun(step, of)}"
        return f"before {self._noun(next(event for event in self._events[n:] if event.action in NOUNS), of)}"

    def _taken(self, start: int, end: int) -> Event | None:
        """Return the last step that was taken between two events."""
        for event in reversed(self._events[start:end]):
            if event.request and event.action != "lose":
                return event._replace(actor=event.whose, action=event.request)
            if event.action in NOUNS and event.answer != HELD:
                return event
        return None

    def _on_its_way(self, n: int, sent: Event) -> str:
        """Say what becomes of a request that is not delivered at once."""
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
            until = self._taken(n + 1, first) or next(following, sent)  # a moment that has passed never comes
            return f"hold {self._noun(sent)} until {self._noun(until)}"
        return f"repeat {self._noun(sent)}" + ("" if last <= first + 1 else f" {self.moment(last)}")

    def _is_given_up(self, n: int) -> bool:
        """Tell whether the driver that acted last waits for an answer: then the supervisor starts the next one."""
        acted = [each for each in self._events[:n] if PROGRAM.fullmatch(each.actor) and each.action != "crash"]
        return bool(acted) and acted[-1].answer == HELD

    def _who_is_gone(self, n: int) -> tuple[str, str]:
        """Return the driver that acts no more when the n-th event starts another, and whether it crashes."""
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
        """Return the first record of a batch: the one behind what was planned for the batch before."""
        if not batch:
            return 0
        planned = [each.row for each in self._events if each.action == "plan" and each.batch == batch - 1]
        return max(row for row in planned if row is not None) + 1
