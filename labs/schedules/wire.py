"""A message on its way between a driver and Kafka, in a schedule's words: who asks for what, and what came back."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

from labs.faults.kafka_contents import Batch, Record, read_batches, read_end, read_ended, read_granted, read_written
from labs.faults.proxy import Passage, Request, Sighting
from labs.pipeline.records import parse_result_value
from labs.schedules.schedule import PROGRAM

KINDS = (Request.INIT_PRODUCER_ID, Request.PRODUCE, Request.END_TXN)  # what is read; all else passes unread


def record_of_a_replay(value: bytes) -> int:
    """Return 3 for the result of "record 3", as a replay's driver writes it. Raises ValueError."""
    return int(parse_result_value(value)[1].removeprefix("record "))


def batch_of_a_marker(value: bytes) -> int:
    """Return the batch in a marker: the field `batch_id`, or the first of a list. Raises ValueError."""
    fields = json.loads(value)
    return int(fields["batch_id"] if isinstance(fields, dict) else fields[0])


def driver_in_client_id(passage: Passage) -> str | None:
    """Return "driver 1" for the client id "driver 1 of …"; None for clients that are nobody in a schedule."""
    name = (passage.client_id or "").partition(" of ")[0]
    return name if PROGRAM.fullmatch(name) else None


@dataclass(eq=False)
class Call:
    """A request of a driver's. `about` has batch and row of each event that it is.

    In the schedule, its events are at `places`, and those of the network that brings it at `arrivals`. `epoch` is the
    one on the wire, None without transactions; `sequence` is the first record's, None where nobody asked for it.
    `topic` and `partition` tell the answer apart.
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
        """What is the same in a request that the client makes again."""
        return self.driver, self.action, self.epoch, *(row for _, row in self.about)


class CameBack(NamedTuple):
    """Kafka's answer. `epoch` and `producer_id` are those that it grants, `offset` is the first record's."""

    answer: str
    epoch: int = -1
    producer_id: int = -1
    offset: int = -1


@dataclass(frozen=True)
class Names:
    """What the messages of one run are called: see `Recorder`."""

    results_topic: str
    marker_topic: str | None = None
    record_of: Callable[[bytes], int] = record_of_a_replay
    batch_of_marker: Callable[[bytes], int] = batch_of_a_marker
    driver_of: Callable[[Passage], str | None] = driver_in_client_id
    sequences: bool = False

    def calls(self, sighting: Sighting) -> list[Call]:
        """Return what a request asks for, as far as it concerns the schedule. Raises ValueError."""
        request, driver = sighting.request, self.driver_of(sighting.passage)
        if driver is None:
            return []
        if request.kind is Request.INIT_PRODUCER_ID:  # who has no name for its transactions fences nobody
            return [Call(driver, "fence")] if request.transactional_id else []
        if request.kind is Request.END_TXN:
            end = read_end(request, sighting.frame)
            action = "commit" if end.committed else "abort"
            return [Call(driver, action, epoch=end.epoch, producer_id=end.producer_id)]
        batches = read_batches(request, sighting.frame)
        return [call for batch in batches if (call := self._sends(driver, batch))]

    def came_back(self, call: Call, sighting: Sighting) -> CameBack:
        """Return Kafka's answer to a call, out of the answer to its request. Raises ValueError."""
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
        """Return the call that sends records, or a marker; None for a topic of somebody else's."""
        about: list[tuple[int | None, int | None]] = []
        if batch.topic == self.marker_topic:
            action = "marker"
            about += ((self.batch_of_marker(record.value or b""), None) for record in batch.records)
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
