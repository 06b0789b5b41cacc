"""A schedule of what really happened: from the messages that went through the proxy, and from a sink's fault points.

    with Recorder(proxy, "results", "sink-marker", record_of=int) as recorder:
        options = {"writers": "driver", "client_id": "driver 1 of sink", "points": recorder.points}
        sink = ExactlyOnceKafkaSink("sink", "results", **options, …)
        … run a query with it …
    print(recorder.schedule("the sink"))

A request and its answer are one event if no other program acted in between; other requests of the same driver do not
count. Otherwise the event says that the request is held, and a second event, in which the network delivers it, stands
where its answer came. The same holds for a request that the proxy held back. A request that a client repeats because
Kafka was not ready is one event.

Guarantee: requests, epochs, records and answers are those on the wire, in the proxy's order.

Limitations:
- The recorder has to be told what does not go over the wire; that a marker was read, since it does not decode the
  answer; and that Kafka refused to add a partition to a transaction, which is how a driver with an old epoch is fenced
  first.
- `points` reports a batch as planned when the sink begins to write it, though Spark planned it before, and as noted
  when the sink is done, though Spark notes it only then.
- What a read_committed reader sees is put together from Kafka's answers: records are where Kafka said that it wrote
  them, and none is visible behind an open transaction of its partition. A transaction counts as ended once Kafka has
  said so to the driver that asked for the end or for the next epoch; real readers notice shortly afterwards. The
  recorder has to be told of a transaction that timed out. `looked` replaces all that by what a reader really saw.
- The recorder keeps all produce requests for as long as it lives: it is meant for as many batches as one can draw.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from exactly_once_kafka.points import BEFORE_CHECKPOINT, BEFORE_ROWS, Points, pass_by
from labs.faults.kafka_messages import (
    RETRIED,
    Batch,
    Record,
    read_batches,
    read_end,
    read_ended,
    read_granted,
    read_written,
)
from labs.faults.proxy import Passage, Proxy, Request, Sighting
from labs.pipeline.records import parse_result_value
from labs.schedules.schedule import HELD, PROGRAM, STRIKES, Event, Schedule

# What a read_committed reader sees

OPEN, COMMITTED, ABORTED = "open", "committed", "aborted"


class Place(NamedTuple):
    partition: int
    offset: int


class Transaction(NamedTuple):
    producer_id: int
    epoch: int


class ReaderView:
    """What is known of the results topic: which records were written, and how their transactions ended."""

    def __init__(self) -> None:
        self._records: dict[Place, tuple[int, Transaction | None]] = {}
        self._fates: dict[Place, str] = {}

    def wrote(self, first: Place, records: tuple[int, ...], transaction: Transaction | None) -> None:
        """Note records that Kafka wrote now or had already, and their transaction, if they have one."""
        for offset, record in enumerate(records, first.offset):
            place = Place(first.partition, offset)
            self._records.setdefault(place, (record, transaction))
            self._fates.setdefault(place, OPEN if transaction else COMMITTED)

    def has(self, place: Place) -> bool:
        """Tell whether a record was written there."""
        return place in self._records

    def ended(self, transaction: Transaction, committed: bool) -> None:
        """End the transaction that this producer has open in this epoch."""
        self._end(COMMITTED if committed else ABORTED, lambda each: each == transaction)

    def granted(self, epoch: Transaction) -> None:
        """Abort the producer's open transactions of older epochs, as Kafka does before it grants another epoch."""
        self._end(ABORTED, lambda each: each.producer_id == epoch.producer_id and each.epoch < epoch.epoch)

    def timed_out(self) -> None:
        """Abort all open transactions."""
        self._end(ABORTED, lambda each: True)

    def visible(self) -> tuple[int, ...]:
        """Return the records that a reader sees, by partition and offset."""
        seen, hidden = [], set()
        for place in sorted(self._records):
            if self._fates[place] == OPEN:
                hidden.add(place.partition)
            elif self._fates[place] == COMMITTED and place.partition not in hidden:
                seen.append(self._records[place][0])
        return tuple(seen)

    def _end(self, fate: str, concerned: Callable[[Transaction], bool]) -> None:
        for place, (_, transaction) in self._records.items():
            if self._fates[place] == OPEN and transaction and concerned(transaction):
                self._fates[place] = fate


# A message in a schedule's words

KINDS = (Request.INIT_PRODUCER_ID, Request.PRODUCE, Request.END_TXN)  # the requests that a recorder reads


def record_of_a_replay(value: bytes) -> int:
    """Return 3 for the result of "record 3", as a replay's driver writes it. Raises ValueError."""
    return int(parse_result_value(value)[1].removeprefix("record "))


def batch_of_a_marker(value: bytes) -> int:
    """Return the batch in a marker: the field `batch_id`, or the first of a list. Raises ValueError."""
    fields = json.loads(value)
    return int(fields["batch_id"] if isinstance(fields, dict) else fields[0])


def driver_in_client_id(passage: Passage) -> str | None:
    """Return "driver 1" for the client id "driver 1 of …"; None for a client that no schedule has."""
    name = (passage.client_id or "").partition(" of ")[0]
    return name if PROGRAM.fullmatch(name) else None


@dataclass(eq=False)
class Call:
    """A driver's request, which is one event in the schedule, or several: `about` has the batch and row of each.

    `places` are the indexes of these events, and `arrivals` those of the events in which the network delivers it.
    `epoch` is None without a transaction. `sequence` is the first record's number, or None if numbers are not recorded.
    """

    driver: str
    action: str
    about: tuple[tuple[int | None, int | None], ...] = ((None, None),)
    epoch: int | None = None
    producer_id: int = -1
    topic: str = ""
    partition: int = -1
    sequence: int | None = None
    places: list[int] = field(default_factory=list)
    arrivals: list[int] = field(default_factory=list)

    @property
    def key(self) -> tuple[object, ...]:
        """What is equal in a request and in its repetition by the client."""
        return self.driver, self.action, self.epoch, *(row for _, row in self.about)


class CameBack(NamedTuple):
    """Kafka's answer. `epoch` and `producer_id` are those that Kafka grants; `offset` is the first record's."""

    answer: str
    epoch: int = -1
    producer_id: int = -1
    offset: int = -1


@dataclass(frozen=True)
class Names:
    """How a recorder names the drivers, batches and records of one run: see `Recorder`."""

    results_topic: str
    marker_topic: str | None = None
    record_of: Callable[[bytes], int] = record_of_a_replay
    driver_of: Callable[[Passage], str | None] = driver_in_client_id
    sequences: bool = False

    def calls(self, sighting: Sighting) -> list[Call]:
        """Return a driver's calls in a request; none for what is not in the schedule. Raises ValueError."""
        request, driver = sighting.request, self.driver_of(sighting.passage)
        if driver is None:
            return []
        if request.kind is Request.INIT_PRODUCER_ID:  # without a transactional id it fences nobody
            return [Call(driver, "fence")] if request.transactional_id else []
        if request.kind is Request.END_TXN:
            end = read_end(request, sighting.frame)
            action = "commit" if end.committed else "abort"
            return [Call(driver, action, epoch=end.epoch, producer_id=end.producer_id)]
        batches = read_batches(request, sighting.frame)
        return [call for batch in batches if (call := self._sends(driver, batch))]

    def came_back(self, call: Call, sighting: Sighting) -> CameBack:
        """Return Kafka's answer to a call, which is a part of the answer to its request. Raises ValueError."""
        request, frame = sighting.request, sighting.answer or sighting.frame
        if call.action == "fence":
            producer_id, epoch, said = read_granted(request, frame)
            return CameBack(f"epoch {epoch}" if said == "ok" else said, epoch, producer_id)
        if request.kind is Request.END_TXN:
            return CameBack(read_ended(request, frame))
        answers = {(each.topic, each.partition): each for each in read_written(request, frame)}
        written = answers[call.topic, call.partition]
        return CameBack(written.said, offset=written.offset)

    def _sends(self, driver: str, batch: Batch) -> Call | None:
        """Return the call that sends records or a marker; None for another topic."""
        about: list[tuple[int | None, int | None]] = []
        if batch.topic == self.marker_topic:
            action = "marker"
            about += ((batch_of_a_marker(record.value or b""), None) for record in batch.records)
        elif batch.topic == self.results_topic:
            action = "row"
            about += ((_batch_of(record), self.record_of(record.value or b"")) for record in batch.records)
        else:
            return None
        epoch = batch.epoch if batch.transactional else None
        sequence = batch.base_sequence if self.sequences and batch.base_sequence >= 0 else None
        return Call(driver, action, tuple(about), epoch, batch.producer_id, batch.topic, batch.partition, sequence)


def _batch_of(record: Record) -> int | None:
    header = record.headers.get("batch_id")
    return None if header is None else int(header)


# The events


class Looked(NamedTuple):
    """A reader was asked what it sees."""

    records: tuple[int, ...]


Entry = Sighting | Event | Looked


def events_of(entries: Iterable[Entry], names: Names) -> tuple[Event, ...]:
    """Return the events. Raises ValueError for a driver's message that cannot be read."""
    recording = _Recording(names, reader_was_asked=any(isinstance(entry, Looked) for entry in entries))
    for entry in entries:
        recording.add(entry)
    return tuple(recording.events)


class _Recording:
    def __init__(self, names: Names, reader_was_asked: bool):
        self.events: list[Event] = []
        self._names, self._asked_reader = names, reader_was_asked
        self._calls: dict[int, list[Call]] = {}  # by the identity of the request's header
        self._again: dict[tuple[object, ...], Call] = {}
        self._planned: dict[str, int | None] = {}  # driver -> its batch; once that is committed, the next one
        self._writing: dict[tuple[str, int | None], int | None] = {}  # driver and epoch -> batch
        self._unused: dict[tuple[str, int | None], Call] = {}  # requests for epochs whose batch is not known yet
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
        if event.actor == "network":  # it delivers a request with an epoch, which the caller need not know
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
        """Set the batch of a request for an epoch, a commit or an abort: from the records around it, or from a plan."""
        using = call.driver, call.epoch
        if call.action == "fence":
            call.about = ((self._planned.get(call.driver), None),)
            return
        if call.action in ("commit", "abort"):
            call.about = ((self._writing.get(using), None),)
            planned, batch = self._planned.pop(call.driver, None), self._writing.get(using)
            if call.action == "commit" and planned is not None and batch is not None:
                self._planned[call.driver] = batch + 1  # a request for an epoch is now for the next batch
        batch = self._writing[using] = call.about[-1][0]
        if fence := self._unused.pop(using, None):
            fence.about = ((batch, None),)
            for place in (*fence.places, *fence.arrivals):
                self._change(place, batch=batch)

    def _answered(self, call: Call, back: CameBack, lost: bool) -> None:
        """Write an answer beside its request, if no other program has acted since then."""
        since = self.events[call.places[-1] + 1 :]
        if lost or any(each.actor != call.driver or each.action in STRIKES for each in since):
            return self._arrives(call, back, "lose the answer" if lost else "deliver")
        if back.answer in RETRIED:
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
        """Return Kafka's answer, or "known already" for records that Kafka has recognised by their sequence numbers.

        For these, it answers with the offset at which it wrote them the first time.
        """
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


class Recorder:
    """Watches a proxy for as long as it is entered, or from its `start` on.

    It records the records of `results_topic`, the markers of `marker_topic`, and the epochs, commits and aborts of all
    drivers. A record's batch is in its header `batch_id`.

    driver_of  returns the driver's name for a message's `Passage`, None for a client that is no driver; by default
               "driver 1" for the client id "driver 1 of …"
    record_of  returns a record's number for its value; by default 3 for the result of "record 3"
    sequences  whether to record the sequence numbers of idempotent producers too, and which records Kafka knew already
    """

    def __init__(self, proxy: Proxy, results_topic: str, marker_topic: str | None = None, **names: Any):
        self._proxy, self._names = proxy, Names(results_topic, marker_topic, **names)
        self._entries: list[Entry] = []

    def start(self) -> Recorder:
        """Watch from now on, for as long as the proxy runs."""
        self._proxy.watch(self._see)
        return self

    def __enter__(self) -> Recorder:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self._proxy.unwatch(self._see)

    @property
    def heard(self) -> int:
        """How many messages it has seen, and how many events it was told, so far."""
        return len(self._entries)

    def tell(self, event: Event) -> None:
        """Add an event that does not go over the wire: a crash, a start, a plan, a marker that was read."""
        self._entries.append(event)

    def starts(self, program: str) -> None:
        """Add the event that a supervisor starts a program, such as "producer 2"."""
        self.tell(Event("supervisor", "start", whose=program))

    def wakes(self, program: str) -> None:
        """Add the event that a program wakes up."""
        self.tell(Event(program, "wake"))

    def looked(self, records: tuple[int, ...]) -> None:
        """Add what a reader sees now. If this is called once, it has to be called after each step."""
        self._entries.append(Looked(records))

    @property
    def points(self) -> Points:
        """The `points=` of driver 1's sink."""
        return self.points_and(pass_by)

    def points_and(self, points: Points, driver: str = "driver 1") -> Points:
        """Return a sink's `points=`, which tell the recorder of plans and notes, and call `points`.

        If `points` raises in a batch, this batch is not noted.
        """

        def tell_and_pass_on(point: str, batch_id: int) -> None:
            if point == BEFORE_ROWS:
                self.tell(Event(driver, "plan", batch_id))
            points(point, batch_id)
            if point == BEFORE_CHECKPOINT:
                self.tell(Event(driver, "note", batch_id))

        return tell_and_pass_on

    def schedule(self, stage: str, anomaly: str | None = None) -> Schedule:
        """Return what has happened so far.

        Raises ValueError for a driver's message that cannot be read, or a record whose number `record_of` cannot tell.
        """
        return Schedule(stage, events_of(list(self._entries), self._names), anomaly)

    def _see(self, sighting: Sighting) -> None:
        if sighting.request.kind in KINDS:
            self._entries.append(sighting)
