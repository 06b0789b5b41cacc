"""Writes the rows of one partition of the source, in transactions that each hold how far the partition was read.

Each transaction has a producer of its own, whose epoch fences all older ones of this source partition: a task that was
frozen, one that Spark runs again, a driver that came back. Only then is the marker read, which nobody else can change
from here on; rows up to it were published before.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from exactly_once_kafka.batch import Marker
from exactly_once_kafka.cause import true_cause
from exactly_once_kafka.patience import Patience
from exactly_once_kafka.points import AFTER_COMMIT, BEFORE_COMMIT, MID_TRANSACTION
from exactly_once_kafka.producer import aborting_on_failure, commit
from exactly_once_kafka.real_time.clients import Clients
from exactly_once_kafka.real_time.points import AFTER_BEGIN
from exactly_once_kafka.real_time.position import BEGINNING, Position, SourceRows
from exactly_once_kafka.real_time.row import Record
from exactly_once_kafka.real_time.task import Task
from exactly_once_kafka.send import ONE_SLICE, acknowledged


def key_of(name: str, topic: str, partition: int) -> str:
    """Return what names this source partition for this sink: its transactional id, and the key of its marker."""
    return f"{name}/{topic}/{partition}"  # no topic has a slash in its name, so that no two are alike


class PartitionWriter:
    """One source partition in one epoch, by its `key`.

    Raises KafkaException, TimeoutError, SinkRefused, Undecidable; after any of them it is of no more use.
    """

    def __init__(self, task: Task, clients: Clients, key: str, point: Callable[[str], object]):
        self._task, self._clients, self._key, self._point = task, clients, key, point
        self._store = clients.marker(key)
        self.patience = Patience(clients.timeout)
        self._rows, self._covered = SourceRows(), BEGINNING
        self._producer: Producer | None = None
        self._written, self._in_middle = 0, False
        self._failures: list[KafkaError] = []

    def write(self, offset: int, record: Record) -> None:
        """Write the next row, made of the source's record at `offset`, unless it was published before."""
        position = self._rows.position(offset)
        producer = self._producer or self._begin()
        if self._was_published(position):
            return
        topic, value, key, partition, headers = record
        with true_cause(producer, topic):
            while True:
                try:
                    producer.produce(topic, value, key, partition, self._note, None, 0, headers)
                    break
                except BufferError:  # the queue is full: let some of it go
                    producer.poll(ONE_SLICE)
                    self.patience.lasts()
            producer.poll(0)
            self._raise_failure()
        self._written += 1
        if not self._in_middle and len(producer) < self._written:  # only what is not acknowledged is still in the queue
            self._in_middle = True
            self._point(MID_TRANSACTION)

    def commit(self) -> None:
        """Publish what was written, and with it how far the source was read."""
        if self._producer is None:
            return
        if not self._written:
            self.abort()  # all of it was published before, and the marker that says so must not go back
            return
        producer, patience, last = self._producer, self.patience.anew(), self._rows.last
        with aborting_on_failure(producer.abort_transaction):
            if not self._in_middle:
                acknowledged(producer, self._written, self._failures, patience, [])
                self._point(MID_TRANSACTION)
            marker = Marker(self._task.epoch, self._task.query_id, str(last))
            self._store.send(marker, producer, patience)  # waits for the rows as well
            self._raise_failure()
            self._point(BEFORE_COMMIT)
        commit(producer, patience)
        self._point(AFTER_COMMIT)
        self._producer, self._covered, self._written = None, last, 0

    def abort(self) -> None:
        """Leave nothing open that readers would have to wait for; the next epoch of the producer would do it too."""
        if self._producer is not None:
            producer, self._producer = self._producer, None
            with contextlib.suppress(KafkaException):
                producer.abort_transaction(5)

    def _begin(self) -> Producer:
        self.patience = self.patience.anew()
        # Not before it is needed: an epoch that is granted after the task's end would fence the next epoch's task.
        producer = self._clients.new_epoch(self._key).take(self.patience)
        self._covered = self._continue_from(self._store.read(self.patience.anew()))
        producer.begin_transaction()
        self._producer, self._written, self._in_middle = producer, 0, False
        self._point(AFTER_BEGIN)
        return producer

    def _continue_from(self, marker: Marker | None) -> Position:
        """Return where the marker says that publishing came to. Raises SinkRefused for a marker that does not fit."""
        covered = BEGINNING
        if marker is not None:
            if marker.query_id != self._task.query_id:
                raise self._task.refusal(f"query {marker.query_id} has published rows of this source partition")
            covered = Position.parse(marker.plan)
        if covered < self._covered:
            raise self._task.refusal(f"the marker went back from {self._covered} to {covered}")
        return covered

    def _was_published(self, position: Position) -> bool:
        return position <= self._covered

    def _note(self, error: KafkaError | None, _: Message) -> None:
        if error:
            self._failures.append(error)

    def _raise_failure(self) -> None:
        if self._failures:
            raise KafkaException(self._failures[0])
