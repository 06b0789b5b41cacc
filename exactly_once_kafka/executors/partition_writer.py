"""One Kafka partition, written by one process in a transaction that several share: numbered, pipelined, repeated alike.

The broker takes a batch only if its sequence number follows the last one's, under the newest epoch, and knows the last
five batches again. So at most five are under way, what has to be sent again is sent with the same bytes, and a batch
that overtook another is refused and comes again in its turn.
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
    UnknownTopicOrPartitionError,
    for_code,
)
from kafka.future import Future

from exactly_once_kafka.cause import GONE
from exactly_once_kafka.executors.cluster import RETRY, Cluster
from exactly_once_kafka.patience import SLICE

IN_FLIGHT = 5
FIRST_REST = 0.002  # seconds; each after it is twice as long, up to RETRY


class Piece(NamedTuple):
    """An encoded record batch and the number of its records."""

    content: bytes
    records: int


class PartitionWriter:
    """Sends record batches to the leader of a partition, as `step` is called and the cluster waited for.

    Raises KafkaError for what is final.
    """

    def __init__(self, cluster: Cluster, transactional_id: str, topic: str, partition: int):
        self.topic, self.partition = topic, partition
        self.added = self.acknowledged = 0  # records
        self.waiting = 0  # bytes
        self.heard = time.monotonic()  # when something was acknowledged last
        self.trouble: Exception | None = None  # why the last try failed, until something is acknowledged
        self._cluster, self._transactional_id = cluster, transactional_id
        self._pieces: deque[Piece] = deque()  # not acknowledged
        self._answers: deque[Future] = deque()  # to the first of them
        self._enrolled = self._again = False
        self._rest_seconds, self._rests_until = FIRST_REST, 0.0
        self._gone_since: float | None = None
        cluster.follow(topic)

    def add(self, piece: Piece) -> None:
        """Send it when its turn comes."""
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
        """The node that leads the partition now, as far as is known."""
        return self._cluster.leader(self.topic, self.partition)

    @property
    def idle(self) -> float:
        """For how many seconds at most a step would do nothing, unless something happens."""
        if self._answers and self._answers[0].is_done:
            return 0  # it came while something else was waited for
        left = self._rests_until - time.monotonic()
        return min(left, SLICE) if left > 0 else SLICE

    def step(self) -> None:
        """Take what was answered, and send what may be sent."""
        while self._answers and self._answers[0].is_done:
            self._hear(self._answers.popleft())
        if time.monotonic() < self._rests_until or (self._again and self._answers):
            return  # what is under way comes back first; then everything is sent in its order again
        self._again = False
        most = IN_FLIGHT if self._enrolled else 1  # the first one enrols the partition
        while len(self._answers) < min(most, len(self._pieces)):
            answer = self._send(self._pieces[len(self._answers)])
            if answer.is_done:  # not sent at all, so that what is under way is none the worse
                self._rest(answer.exception or RuntimeError("a request was answered before it was sent"))
                return
            self._answers.append(answer)

    def _send(self, piece: Piece) -> Future:
        leader = self.leader
        if leader is None:
            self._raise_if_gone()
            return Future().failure(LeaderNotAvailableError(f"nobody leads {self.topic}-{self.partition}"))
        return self._cluster.produces.add(leader, self._transactional_id, self.topic, self.partition, piece.content)

    def _raise_if_gone(self) -> None:
        """Raise UnknownTopicOrPartitionError if there has been no such partition for a while."""
        if self._cluster.has(self.topic, self.partition):
            self._gone_since = None
        elif self._gone_since is None:
            self._gone_since = time.monotonic()
        elif time.monotonic() - self._gone_since > GONE:
            raise UnknownTopicOrPartitionError(
                f"{self.topic}-{self.partition} was there and is not any more: the topic was deleted, or made anew"
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
            self._rest_seconds = FIRST_REST
        elif error is OutOfOrderSequenceNumberError and self._again:
            pass  # it overtook one that was not taken
        elif error.retriable:
            self._fail(error(f"{self.topic}-{self.partition}: {partition.error_message or error.description}"))
        elif error not in (NoError, DuplicateSequenceNumberError):
            raise error(f"{self.topic}-{self.partition}: {partition.error_message or error.description}")

    def _fail(self, error: Exception) -> None:
        self._again = True
        self._rest(error)

    def _rest(self, error: Exception) -> None:
        self.trouble = error
        self._rests_until = time.monotonic() + self._rest_seconds
        self._rest_seconds = min(2 * self._rest_seconds, RETRY)
        if getattr(error, "invalid_metadata", True):
            self._cluster.look_again()


def send(
    cluster: Cluster, writers: Sequence[PartitionWriter], seconds: float, look: Callable[[], object], most: int = 0
) -> None:
    """Send what the writers have, until at most so many bytes of it wait for an acknowledgement.

    `look` is called while it waits, and may raise. Raises KafkaError, and TimeoutError where a partition's leader
    acknowledges nothing for so many seconds of waiting: how long the rows took to compute before is no fault of
    Kafka's, and while a quota tells this client to wait, Kafka is not silent.
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
            if cluster.is_told_to_wait(leader):
                led[0].heard = time.monotonic()  # it has said so
            _listen(led, began, seconds)
        look()
        cluster.wait(min(writer.idle for writer in busy))


def _listen(led: Sequence[PartitionWriter], began: float, seconds: float) -> None:
    """Raise TimeoutError if the one who leads these partitions owes answers and has given none for so long."""
    busy = [writer for writer in led if not writer.done]
    if busy and time.monotonic() - max(began, *(writer.heard for writer in led)) > seconds:
        why = next((f"; last: {writer.trouble}" for writer in busy if writer.trouble), "")
        raise TimeoutError(f"{busy[0].topic}-{busy[0].partition} acknowledged nothing for {seconds:g} s{why}")
