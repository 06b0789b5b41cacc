"""A transport takes the steps of a protocol: it does the I/O and decides nothing about batches.

A sink has one transport. For each batch the sink calls `start`, and then `take` for one step after the other.
"""

from __future__ import annotations

import uuid
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable
from typing import Any

from pyspark.sql import DataFrame

from exactly_once_kafka.deadline import Deadline
from exactly_once_kafka.kafka_rows import BatchRows, Tags
from exactly_once_kafka.marker_store import MarkerStore
from exactly_once_kafka.protocol import Batch, Marker, Step
from exactly_once_kafka.query import RunningQuery, place_at_first


class Transport(ABC):
    """Takes the steps of the batches of one sink: a step is a method of its name, and the answer is what it returns.

    look, wait_and_look and read_marker return the Marker, or None. rows returns True if all rows are acknowledged, and
    False if they must be written again. The others return None. A place without epochs, such as a directory, needs no
    methods look, wait_and_look and fence: no protocol yields those steps there. If `rows` always returns True, no
    protocol yields abort.
    """

    @property
    def has_epoch(self) -> bool:
        """Tell whether the next batch has an epoch already, or needs none because this place has no epochs."""
        return True

    def take(self, step: Step) -> Any:
        return getattr(self, step.replace(" ", "_"))()

    def next_epoch(self) -> None:  # noqa: B027  a place without epochs needs none
        """Get the epoch for the next batch, or start to get it in the background."""

    @abstractmethod
    def give_up(self, seconds: float) -> None:
        """After a step has failed, abort the open transaction within `seconds`, if there is one."""


class KafkaTransport(Transport):
    """What DriverTransport and ExecutorsTransport share: the steps that read the marker from `store`, and `drain`.

    A step may raise KafkaException, TimeoutError, IncompleteWrite, OutcomeUnknown, MarkerTopicUnsafe, QueryStopped,
    CheckpointFailed, or ValueError for a row.
    """

    def __init__(self, store: MarkerStore, batch_headers: bool):
        self.store, self._batch_headers = store, batch_headers

    def prepare(self, data: BatchRows) -> None:
        """Let Spark start to compute the rows for the driver, if it is likely that the driver will write them."""

    def start(
        self, batch: Batch, data: BatchRows, query: RunningQuery, deadline: Deadline, in_rows: Callable[[], object]
    ) -> None:
        """Note the batch whose steps come next.

        DriverTransport calls `in_rows` when the first rows are in Kafka, ExecutorsTransport when all are.
        """
        self.batch, self.data, self._query, self.deadline, self.in_rows = batch, data, query, deadline, in_rows

    def look(self) -> Marker | None:
        """Return the last committed marker. Before batch 0, create its topic if there is none, and note its id.

        Raises MarkerMismatch if batch 0 has no marker because its topic was deleted or the sink had another name.
        """
        topic = self.store.topic.id(self.deadline)
        marker = self.store.read(self.deadline, undecided=True) if topic else None
        if marker is not None or self.batch.batch_id > 0:  # without a marker, the protocol refuses a later batch
            return marker
        note = self._query.checkpoint_note(self.store.name)
        began_with = place_at_first(note, topic, f"the marker's topic {self.store.topic.name!r}")
        if topic is None:
            topic = self.store.topic.create(self.deadline)
        if began_with is None:
            note.write(topic)
        return None

    def wait_and_look(self) -> Marker | None:
        if self.store.topic.id(self.deadline) is None:
            return None
        self.ensure_transaction_ended()
        return self.store.read(self.deadline.restarted())

    def ensure_transaction_ended(self) -> None:
        """End the last transaction in partitions where Kafka left it open, if Kafka calls it complete."""

    def read_marker(self) -> Marker | None:
        # If there is no marker, its topic may have been deleted and created again since the look. A second look
        # compares the topic's id with the one in the checkpoint.
        return self.store.read(self.deadline.restarted()) or self.look()

    def drain(self) -> None:
        if self.data.begun:  # Spark already computes the rows: a second job would write the state at the same time
            deque(self.data, maxlen=0)
        else:
            execute_and_discard(self.data.rows)

    def stop_asking(self) -> None:
        """Cancel requests for an epoch, since the query has ended: a late epoch would fence the next run."""

    @abstractmethod
    def forget_epoch(self) -> None:
        """Drop the epoch for the next batch, which must then get a new one."""

    def forget_what_was_learnt(self) -> None:
        """Reset after a failure: the size of batches, or the brokers' addresses, may have changed."""

    def close(self) -> None:
        """Close clients and connections. A later batch opens new ones."""
        self.forget_epoch()
        self.store.disconnect()

    def tags(self) -> Tags:
        """Return the headers that each record of this attempt gets."""
        if not self._batch_headers:
            return []
        return [("batch_id", str(self.batch.batch_id)), ("attempt", uuid.uuid4().hex[:8])]


def execute_and_discard(rows: DataFrame) -> None:
    """Execute a batch, and discard its rows."""
    rows.write.format("noop").mode("overwrite").save()
