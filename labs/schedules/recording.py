"""From what was seen, message by message, to the events of a schedule.

A request stands where it was sent, with its answer, if nobody else did anything before that came; what its own driver
does meanwhile, as with several requests under way, does not count. Else the request is held, and the network delivers
it when its answer comes, as it does with what the proxy itself held back. A request that a client repeats by itself,
because Kafka was not ready for it, is one.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

from labs.faults.kafka_contents import COME_AGAIN
from labs.faults.proxy import Sighting
from labs.schedules.reader_view import Place, ReaderView, Transaction
from labs.schedules.schedule import HELD, STRIKES, Event
from labs.schedules.wire import Call, CameBack, Names


class Looked(NamedTuple):
    """A reader was asked what it sees."""

    records: tuple[int, ...]


Entry = Sighting | Event | Looked


def events_of(entries: Iterable[Entry], names: Names) -> tuple[Event, ...]:
    """Return the events. Raises ValueError for a message of a driver's that cannot be read."""
    recording = _Recording(names, reader_was_asked=any(isinstance(entry, Looked) for entry in entries))
    for entry in entries:
        recording.add(entry)
    return tuple(recording.events)


class _Recording:
    def __init__(self, names: Names, reader_was_asked: bool):
        self.events: list[Event] = []
        self._names, self._asked_reader = names, reader_was_asked
        self._calls: dict[int, list[Call]] = {}  # by which object the request's header is
        self._again: dict[tuple[object, ...], Call] = {}
        self._planned: dict[str, int | None] = {}  # driver -> its batch, until it is committed
        self._writing: dict[tuple[str, int | None], int | None] = {}  # driver and epoch -> batch
        self._unused: dict[tuple[str, int | None], Call] = {}  # epochs of which it is not known yet for which batch
        self._view = ReaderView()
        self._seen: tuple[int, ...] = ()

    def add(self, entry: Entry) -> None:
        if isinstance(entry, Event):
            self._told(entry)
        elif isinstance(entry, Looked):
            self._sees(-1, entry.records)
        elif entry.answer:
            action = "deliver" if entry.passage.done.startswith("delivered late") else "deliver again"
            for call in self._calls.get(id(entry.request), ()):
                for place in call.arrivals:
                    self._change(place, action="deliver again")
                self._arrives(call, self._names.came_back(call, entry), "deliver" if call.arrivals else action)
        elif entry.passage.direction == "request":
            self._calls[id(entry.request)] = [
                self._asked(call, entry.passage.done) for call in self._names.calls(entry)
            ]
        else:
            for call in self._calls.pop(id(entry.request), ()):
                self._answered(call, self._names.came_back(call, entry), lost=entry.passage.done == "dropped")

    def _told(self, event: Event) -> None:
        if event.actor == "network":  # of what was sent in an epoch, of which who tells need not know
            carried = event.whose, event.request, event.batch, event.row
            sent = (each for each in reversed(self.events) if (each.actor, *each[1:4]) == carried)
            event = event._replace(epoch=next((each.epoch for each in sent), None))
        self.events.append(event)
        if event.action == "plan":
            self._planned[event.actor] = event.batch
        if event.action == "time out":
            self._view.timed_out()
        self._look()

    def _asked(self, call: Call, done: str) -> Call:
        if again := self._again.pop(call.key, None):
            call = again
            for place in call.places:
                self._change(place, answer=HELD)
        else:
            self._name_batch(call)
            for n, (batch, row) in enumerate(call.about):
                call.places.append(len(self.events))
                sequence = None if call.sequence is None else call.sequence + n
                self.events.append(Event(call.driver, call.action, batch, row, call.epoch, HELD, sequence=sequence))
        if done == "dropped":
            self._carry(call, "lose", "")
        return call

    def _name_batch(self, call: Call) -> None:
        """Say for which batch an epoch is asked, or used: the next records tell, or a plan that was told."""
        using = call.driver, call.epoch
        if call.action == "fence":
            call.about = ((self._planned.get(call.driver), None),)
            return
        if call.action in ("commit", "abort"):
            call.about = ((self._writing.get(using), None),)
            self._planned.pop(call.driver, None)
        batch = self._writing[using] = call.about[-1][0]
        if fence := self._unused.pop(using, None):
            fence.about = ((batch, None),)
            for place in (*fence.places, *fence.arrivals):
                self._change(place, batch=batch)

    def _answered(self, call: Call, back: CameBack, lost: bool) -> None:
        """Write an answer beside its request, if nobody else did anything since."""
        since = self.events[call.places[-1] + 1 :]
        if lost or any(each.actor != call.driver or each.action in STRIKES for each in since):
            return self._arrives(call, back, "lose the answer" if lost else "deliver")
        if back.answer in COME_AGAIN:
            self._again[call.key] = call
        answer = self._in_words(call, back)
        self._note(call, back)
        for place in call.places:
            self._change(place, answer=answer)
        self._look(call.places[-1])

    def _arrives(self, call: Call, back: CameBack, action: str) -> None:
        answer = self._in_words(call, back)
        self._note(call, back)
        self._carry(call, action, answer)
        self._look()

    def _in_words(self, call: Call, back: CameBack) -> str:
        """Return Kafka's answer; of numbered records, whether it had them already: it says the same offset again."""
        known = call.sequence is not None and self._view.has(Place(call.partition, back.offset))
        return "known already" if known and back.answer == "ok" else back.answer

    def _carry(self, call: Call, action: str, answer: str) -> None:
        for batch, row in call.about:
            call.arrivals.append(len(self.events))
            carried = Event("network", action, batch, row, call.epoch, answer, request=call.action, whose=call.driver)
            self.events.append(carried)

    def _note(self, call: Call, back: CameBack) -> None:
        """Note what an answer says of epochs and transactions."""
        if call.action == "fence" and back.epoch >= 0:
            self._unused[call.driver, back.epoch] = call
            self._view.granted(Transaction(back.producer_id, back.epoch))
        elif back.answer == "ok":
            transaction = None if call.epoch is None else Transaction(call.producer_id, call.epoch)
            if call.action == "row":
                records = tuple(row for _, row in call.about if row is not None)
                self._view.wrote(Place(call.partition, back.offset), records, transaction)
            elif transaction and call.action in ("commit", "abort"):
                self._view.ended(transaction, committed=call.action == "commit")

    def _look(self, place: int = -1) -> None:
        if not self._asked_reader:
            self._sees(place, self._view.visible())

    def _sees(self, place: int, records: tuple[int, ...]) -> None:
        if records != self._seen:
            self._seen = records
            self._change(place, sees=records)

    def _change(self, place: int, **what: Any) -> None:
        self.events[place] = self.events[place]._replace(**what)
