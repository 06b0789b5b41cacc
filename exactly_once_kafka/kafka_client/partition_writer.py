"""Writes to one Kafka partition, in a transaction that several processes share.

The broker accepts a record batch only under the newest epoch, and only if its sequence number follows that of the last
one. It recognises the last five batches if they come again. So at most five batches are in flight, and a retry sends
the same bytes. If a batch is refused, the broker refuses the batches behind it too; all are sent again in their order.
"""

from __future__ import annotations

import time
from collections import defaultdict, deque
from collections.abc import Callable, Sequence
from typing import NamedTuple

from kafka.errors import (
    DuplicateSequenceNumberError,
    LeaderNotAvailableError,
    NoError,
    OutOfOrderSequenceNumberError,
    TopicAuthorizationFailedError,
    UnknownTopicOrPartitionError,
    for_code,
)
from kafka.future import Future

from exactly_once_kafka.deadline import SLICE
from exactly_once_kafka.errors import NOT_ALLOWED, AbsenceTimer
from exactly_once_kafka.kafka_client.cluster import RETRY, Cluster

IN_FLIGHT = 5
FIRST_BACKOFF = 0.002  # seconds; each one after it is twice as long, up to RETRY


class EncodedBatch(NamedTuple):
    """An encoded record batch and the number of its records."""

    content: bytes
    records: int


class PartitionWriter:
    """Sends record batches to the leader of a partition, while the caller calls `step` and the cluster's `wait`.

    `step` raises a KafkaError if that is not retriable.
    """

    def __init__(self, cluster: Cluster, transactional_id: str, topic: str, partition: int):
        self.topic, self.partition = topic, partition
        self.added = self.acknowledged = 0  # records
        self.waiting = 0  # bytes not acknowledged
        self.heard = time.monotonic()  # when something was acknowledged last
        self.trouble: Exception | None = None  # why the last try failed, until something is acknowledged
        self._cluster, self._transactional_id = cluster, transactional_id
        self._pieces: deque[EncodedBatch] = deque()  # not acknowledged
        self._answers: deque[Future] = deque()  # to the first of these pieces, which are in flight
        self._enrolled = self._again = False
        self._backoff, self._backs_off_until = FIRST_BACKOFF, 0.0
        self._absence = AbsenceTimer()
        cluster.follow(topic)

    def add(self, piece: EncodedBatch) -> None:
        """Queue a batch."""
        if not self._pieces:
            self.heard = time.monotonic()
        self._pieces.append(piece)
        self.added += piece.records
        self.waiting += len(piece.content)

    @property
    def done(self) -> bool:
        return not self._pieces

    @property
    def leader(self) -> int | None:
        """The id of the node that leads the partition, by the last metadata; None if there is none."""
        return self._cluster.leader(self.topic, self.partition)

    @property
    def idle(self) -> float:
        """The seconds until the next step, unless an answer comes before."""
        if self._answers and self._answers[0].is_done:
            return 0  # an answer has come already
        left = self._backs_off_until - time.monotonic()
        return min(left, SLICE) if left > 0 else SLICE

    def step(self) -> None:
        """Process the answers that came, and send the batches that may be sent."""
        while self._answers and self._answers[0].is_done:
            self._hear(self._answers.popleft())
        if time.monotonic() < self._backs_off_until or (self._again and self._answers):
            return  # wait for the answers to all that is in flight; then send all of it again, in order
        self._again = False
        most = IN_FLIGHT if self._enrolled else 1  # the first batch enrols the partition in the transaction
        while len(self._answers) < min(most, len(self._pieces)):
            answer = self._send(self._pieces[len(self._answers)])
            if answer.is_done:  # it was not sent, so what is in flight is not affected
                self._back_off(answer.exception or RuntimeError("a request was answered before it was sent"))
                return
            self._answers.append(answer)

    def _send(self, piece: EncodedBatch) -> Future:
        leader = self.leader
        if leader is None:
            self._raise_if_gone()
            return Future().failure(LeaderNotAvailableError(f"no leader for {self.topic}-{self.partition}"))
        return self._cluster.produces.add(leader, self._transactional_id, self.topic, self.partition, piece.content)

    def _raise_if_gone(self) -> None:
        """Raise UnknownTopicOrPartitionError if there has been no such partition for GONE seconds."""
        if self._cluster.has(self.topic, self.partition):
            self._absence.seen()
        elif self._absence.missed():
            raise UnknownTopicOrPartitionError(
                f"{self.topic}-{self.partition} no longer exists: the topic was deleted, or deleted and created again"
            )

    def _hear(self, answer: Future) -> None:
        if answer.exception is not None:
            self._fail(answer.exception)
            return
        partition = answer.value
        error = for_code(partition.error_code)
        if error in (NoError, DuplicateSequenceNumberError) and not self._again:
            piece = self._pieces.popleft()
            self.acknowledged += piece.records
            self.waiting -= len(piece.content)
            self._enrolled, self.trouble, self.heard = True, None, time.monotonic()
            self._backoff = FIRST_BACKOFF
        elif error is OutOfOrderSequenceNumberError and self._again:
            pass  # a batch before it was refused
        elif error.retriable:
            self._fail(error(f"{self.topic}-{self.partition}: {partition.error_message or error.description}"))
        elif error is TopicAuthorizationFailedError:
            raise error(f"{NOT_ALLOWED}WRITE to topic {self.topic!r}")
        elif error not in (NoError, DuplicateSequenceNumberError):
            raise error(f"{self.topic}-{self.partition}: {partition.error_message or error.description}")

    def _fail(self, error: Exception) -> None:
        self._again = True
        self._back_off(error)

    def _back_off(self, error: Exception) -> None:
        self.trouble = error
        self._backs_off_until = time.monotonic() + self._backoff
        self._backoff = min(2 * self._backoff, RETRY)
        if getattr(error, "invalid_metadata", True):
            self._cluster.refresh_metadata()


def send(
    cluster: Cluster, writers: Sequence[PartitionWriter], seconds: float, look: Callable[[], object], most: int = 0
) -> None:
    """Send what the writers have, until fewer than `most` bytes wait for an acknowledgement (0: until all have one).

    `look` is called during the wait, and may raise. Raises KafkaError, and TimeoutError if a partition's leader
    acknowledges nothing for `seconds` of this call, not counting the time for which it throttles this client.
    """
    began = time.monotonic()
    while True:
        for writer in writers:
            writer.step()
        cluster.wait(0)
        busy = [writer for writer in writers if not writer.done]
        if not busy or sum(writer.waiting for writer in busy) < most:
            return
        by_leader = defaultdict[int | None, list[PartitionWriter]](list)
        for writer in writers:
            by_leader[writer.leader].append(writer)
        for leader, led in by_leader.items():
            if cluster.is_throttled(leader):
                led[0].heard = time.monotonic()  # a leader that throttles has answered
            _raise_if_silent(led, began, seconds)
        look()
        cluster.wait(min(writer.idle for writer in busy))


def _raise_if_silent(led: Sequence[PartitionWriter], began: float, seconds: float) -> None:
    """Raise TimeoutError if batches wait, and the leader of `led` has acknowledged nothing for `seconds`."""
    busy = [writer for writer in led if not writer.done]
    if busy and time.monotonic() - max(began, *(writer.heard for writer in led)) > seconds:
        why = next((f"; last: {writer.trouble}" for writer in busy if writer.trouble), "")
        raise TimeoutError(f"{busy[0].topic}-{busy[0].partition} acknowledged nothing for {seconds:g} s{why}")
