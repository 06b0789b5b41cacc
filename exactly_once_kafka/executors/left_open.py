"""What Kafka has left open of a transaction that it calls complete: it is found, and ended as the transaction was.

The coordinator of Kafka 4.3.1 takes a partition that has no leader at that moment for a deleted one, and does not tell
it how the transaction ended (KAFKA-20734). Its rows stay undecided then until a later transaction of the same producer
ends there, and share that one's fate: rows of an aborted attempt would be committed, and committed ones be lost.

Where it stops: a partition that this user may not READ cannot be looked at; nor, where the rows name their topics, one
that has no leader. If the driver dies, or the coordinator goes away for long, between the enrolment of committed rows
and EndTxn, they are lost. Between the new epoch and the enrolment nobody knows how they were to end: the sink refuses.
"""

from __future__ import annotations

import contextlib
import functools
import math
import threading
from collections.abc import Collection, Iterable, Iterator
from typing import Any, NamedTuple

from confluent_kafka import KafkaException
from kafka.errors import (
    ConcurrentTransactionsError,
    OperationNotAttemptedError,
    TransactionalIdNotFoundError,
    UnstableOffsetCommitError,
)
from kafka.protocol.admin.transactions import DescribeTransactionsRequest
from kafka.protocol.producer.transaction import AddOffsetsToTxnRequest, AddPartitionsToTxnRequest

from exactly_once_kafka.errors import Undecidable
from exactly_once_kafka.executors.connection import for_executors
from exactly_once_kafka.executors.coordinator import Coordinator
from exactly_once_kafka.executors.encoding import Encoding
from exactly_once_kafka.executors.record_batch import ProducerId
from exactly_once_kafka.executors.undecided import Partition, Undecided, by_topic, is_offset_undecided
from exactly_once_kafka.options import BLIND, LOGGER
from exactly_once_kafka.patience import Patience

COMPLETE = {"CompleteCommit": True, "CompleteAbort": False, "Empty": None}  # was the last transaction committed?
ENDING = ("PrepareCommit", "PrepareAbort")  # until it is complete
AHEAD = {"CompleteCommit": 1, "CompleteAbort": 2}  # by how much, at most, the end has raised the producer's epoch
BY_CLIENTS = 3  # version of AddPartitionsToTxn; later ones are for brokers alone
TOPIC = AddPartitionsToTxnRequest.AddPartitionsToTxnTopic
NO_PARTITION = -1  # is the number of what stands among partitions, and is none


class Last(NamedTuple):
    """The last transaction of a transactional id: its producer, whose epoch may be `ahead` by now, and its state."""

    producer: ProducerId
    state: str
    ahead: float = 0

    @property
    def committed(self) -> bool | None:
        """Tell how it is decided; None if it is not, or if that is not known any more."""
        return COMPLETE.get(self.state)


class LeftOpen:
    """Looks after the partitions of `topic` (None: of every topic) and the marker's. Any thread may use it.

    So it does after the offset that transactions commit for `group`, if they do: one in the marker's partition, and
    nobody commits another for this group, nor before the last one has been read.

    Raises KafkaException, TimeoutError, Undecidable, and what `patience` raises.
    """

    def __init__(self, coordinator: Coordinator, topic: str | None, group: str | None = None):
        self.coordinator, self._group = coordinator, group
        self._offset: Partition = (f"the offset of group {group!r}", NO_PARTITION)
        topics = (topic, coordinator.marker_topic)
        self._undecided = Undecided([each for each in topics if each is not None], anywhere=topic is None)
        self._found: tuple[Last, list[Partition]] | None = None  # by one who then took a new epoch
        self._lock = threading.RLock()

    def suffices(self, patience: Patience) -> bool:
        """Tell whether the cluster gives the next epoch with the end of each transaction."""
        with self._alone():
            return self.coordinator.suffices(patience)

    def fence(self, patience: Patience) -> ProducerId:
        """Get a new epoch, which ends what older ones left open, and see that all of it has ended."""
        with self._alone():
            producer: ProducerId = self.coordinator.patiently(lambda: self._fence(patience), patience)
            if self._found:
                producer = self._end(*self._found, producer, patience)
                self._found = None
            return producer

    def settle(self, patience: Patience, abort: bool = False) -> None:
        """See that the transaction that was decided last has ended, by a new epoch if it must be.

        One that is open is left alone, whoever's it is, or aborted by a new epoch.
        """

        def is_left() -> bool:
            last = self._last_at_rest(patience)
            if last is None and self._is_offset_open(patience):
                raise self._offset_of_nobody()
            if last is None or last.state not in COMPLETE:
                return bool(last and abort)
            if not self._open(last, None, patience):
                return False
            return self._last(patience) == last  # or else another has begun one since

        with self._alone():
            if self.coordinator.patiently(is_left, patience):
                self.fence(patience.anew())

    def ended(
        self,
        producer: ProducerId,
        committed: bool,
        following: ProducerId,
        patience: Patience,
        wrote: Collection[Partition] | None = None,
        itself: bool = False,
    ) -> ProducerId:
        """See that the transaction of `producer` has ended wherever it `wrote`; return the epoch to go on with.

        `following` is the epoch that its end gave. Without `wrote`, it may have written anywhere. `itself`: it was this
        process that wrote there, and so knows who leads, or did until then.
        """
        last = Last(producer, "CompleteCommit" if committed else "CompleteAbort")
        partitions = None if wrote is None else {*wrote, (self.coordinator.marker_topic, 0)}
        with self._alone():
            found = self._remaining(last, partitions, patience, itself)
            return self._end(last, found, following, patience) if found else following

    def rest(self) -> None:
        """Give up the connections."""
        with self._lock:
            self.coordinator.rest()

    def close(self) -> None:
        """Give up the connections, for good."""
        with self._lock:
            self.coordinator.cluster.close()

    @contextlib.contextmanager
    def _alone(self) -> Iterator[None]:
        """Be the only thread at it. After an error begin anew, by the addresses that were given."""
        with self._lock:
            try:
                yield
            except Exception:
                self.coordinator.rest()
                raise

    def _fence(self, patience: Patience) -> ProducerId:
        """Get a new epoch, and note what is found.

        While a transaction is open, that has it aborted, and is to be tried again.
        """
        last = self._last_at_rest(patience)
        if last and last.state in COMPLETE:
            self._note(last, self._open(last, None, patience))
        patience.lasts()  # who was stopped must not fence a successor
        # Once something is found, the answer is waited for: without it, nobody would know any more how that is to end.
        producer = self.coordinator.fence_once(Patience(patience.seconds) if self._found else patience)
        if last and last.state not in COMPLETE:
            self._note(last, self._open(last, None, patience))  # it came to its end between the two questions
        return producer

    def _note(self, last: Last, found: list[Partition]) -> None:
        """Note what is to be ended, and how; what was noted before is known better, now that there is a new epoch."""
        if not found:
            self._found = None
        elif last.committed is not None:
            self._found = last, found
        elif not self._found or self._found[0].producer.id != last.producer.id:
            if found == [self._offset]:
                raise self._offset_of_nobody()
            raise Undecidable(_where(found))

    def _end(self, last: Last, found: list[Partition], producer: ProducerId, patience: Patience) -> ProducerId:
        """End what was found as the transaction was that it is of, and return the epoch that this gives.

        A transaction ends with all that its producer has open in its partitions, also if it wrote nothing there itself.
        Once it is begun, nobody may stop it: what is enrolled and not ended will be aborted.
        """
        if producer.id != last.producer.id:
            raise Undecidable(_where(found))
        committed, patience = bool(last.committed), Patience(patience.seconds)
        how = "committed" if committed else "aborted"
        while found:
            LOGGER.warning("sink %r: Kafka left open, in %s, what was %s", self.coordinator.name, _where(found), how)
            self.coordinator.patiently(functools.partial(self._enrol, found, producer, patience), patience)
            producer = self.coordinator.end(producer, committed, patience)
            found = self._remaining(last, found, patience)
        return producer

    def _remaining(
        self, last: Last, partitions: Collection[Partition] | None, patience: Patience, itself: bool = False
    ) -> list[Partition]:
        """Return where it is open although it is complete."""

        def remaining() -> list[Partition]:
            if not self._open(last, partitions, patience, itself):
                return []
            self._last_at_rest(patience)
            return self._open(last, partitions, patience)

        found: list[Partition] = self.coordinator.patiently(remaining, patience)
        return found

    def _enrol(self, partitions: list[Partition], producer: ProducerId, patience: Patience) -> None:
        if self._offset in partitions:
            of_group = AddOffsetsToTxnRequest(
                version=BY_CLIENTS,
                transactional_id=self.coordinator.name,
                producer_id=producer.id,
                producer_epoch=producer.epoch,
                group_id=self._group,
            )
            self.coordinator.ask_once(of_group, patience)
        if topics := by_topic(each for each in partitions if each != self._offset):
            of_topics = AddPartitionsToTxnRequest(
                version=BY_CLIENTS,
                v3_and_below_transactional_id=self.coordinator.name,
                v3_and_below_producer_id=producer.id,
                v3_and_below_producer_epoch=producer.epoch,
                v3_and_below_topics=[TOPIC(name=name, partitions=which) for name, which in topics.items()],
            )
            self.coordinator.ask_once(of_topics, patience, _why_not_enrolled)

    def _last(self, patience: Patience) -> Last | None:
        """Return the last transaction, or None if there was none, or so long ago that Kafka has forgotten it."""
        request = DescribeTransactionsRequest(version=0, transactional_ids=[self.coordinator.name])
        try:
            answer = self.coordinator.ask_once(request, patience, lambda said: [said.transaction_states[0].error_code])
        except TransactionalIdNotFoundError:
            return None
        [state] = answer.transaction_states
        name = state.transaction_state
        return Last(ProducerId(state.producer_id, state.producer_epoch), name, AHEAD.get(name, math.inf))

    def _last_at_rest(self, patience: Patience) -> Last | None:
        """Return the last transaction. Raises ConcurrentTransactionsError while its end is on its way."""
        last = self._last(patience)
        if last and last.state in ENDING:
            raise ConcurrentTransactionsError("the end of the transaction is on its way")
        return last

    def _open(
        self, last: Last, partitions: Collection[Partition] | None, patience: Patience, itself: bool = False
    ) -> list[Partition]:
        """Return those of the partitions, or of all, in which it is open. Raises Undecidable if an older one is."""
        cluster = self.coordinator.cluster
        real = partitions and [each for each in partitions if each != self._offset]
        found = self._undecided.of(last.producer.id, cluster, real, patience, itself)
        if older := [each for each, epoch in found.items() if last.producer.epoch - epoch > last.ahead]:
            raise Undecidable(_where(older))
        asked = partitions is None or self._offset in partitions
        return [*found, *([self._offset] if asked and self._is_offset_open(patience) else [])]

    def _is_offset_open(self, patience: Patience) -> bool:
        if self._group is None:
            return False
        return is_offset_undecided(self._group, (self.coordinator.marker_topic, 0), self.coordinator.cluster, patience)

    def _offset_of_nobody(self) -> UnstableOffsetCommitError:
        """Return an error to be tried again: a new coordinator of the group may need a moment to see an end."""
        return UnstableOffsetCommitError(
            f"Kafka left {self._offset[0]} open, and nobody knows any more how it was to end. If it stays so, delete "
            "that group: the marker's topic decides then"
        )


def left_open_of(
    name: str,
    settings: dict[str, Any],
    encoding: Encoding,
    marker_topic: str,
    topic: str | None,
    group: str | None = None,
) -> LeftOpen:
    """Return who looks after a sink's partitions. `settings` are the producer's, by librdkafka's names.

    Raises ValueError for one that kafka-python has no like of.
    """
    timeout_ms = int(settings["transaction.timeout.ms"])
    return LeftOpen(Coordinator(name, for_executors(settings), encoding, marker_topic, timeout_ms), topic, group)


def settle(
    name: str,
    settings: dict[str, Any],
    marker_topic: str,
    topic: str | None,
    patience: Patience,
    *,
    abort: bool,
    group: str | None = None,
) -> None:
    """See that the name's last transaction has ended, as LeftOpen does: before librdkafka takes an epoch.

    That has Kafka forget how it ended. Where kafka-python is not let in, nobody looks. Raises what LeftOpen does.
    """
    try:
        left_open = left_open_of(name, settings, Encoding(), marker_topic, topic, group)
    except ValueError as error:
        LOGGER.warning(BLIND, name, error)
        return
    with contextlib.closing(left_open):
        try:
            suffices = left_open.suffices(patience)
        except KafkaException as error:
            LOGGER.warning(BLIND, name, error)
            return
        if suffices:
            left_open.settle(patience, abort)


def _why_not_enrolled(answer: Any) -> list[int]:
    """Return the error codes of an answer to AddPartitionsToTxn, last those of partitions that had none themselves."""
    topics = answer.results_by_topic_v3_and_below
    codes = [each.partition_error_code for topic in topics for each in topic.results_by_partition]
    return sorted(codes, key=lambda code: code == OperationNotAttemptedError.errno)


def _where(partitions: Iterable[Partition]) -> str:
    return ", ".join(each[0] if each[1] == NO_PARTITION else f"{each[0]}-{each[1]}" for each in partitions)
