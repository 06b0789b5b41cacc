"""What Kafka has left open of a transaction that it calls complete: it is found, and ended as the transaction was.

The coordinator of Kafka 4.3.1 takes a partition that has no leader at that moment for a deleted one, and does not tell
it how the transaction ended. Its rows stay undecided then until a later transaction of the same producer ends there,
and share that one's fate: rows of an aborted attempt would be committed, and rows that were committed be lost.

Where it stops: a partition that this user may not READ cannot be looked at; nor, where the rows name their topics, one
that has no leader. If the driver dies between the new epoch and the end of what was found, which takes milliseconds,
nobody knows any more how it was to end, and the sink refuses.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Collection, Iterator
from typing import Any, NamedTuple

from kafka.errors import ConcurrentTransactionsError, OperationNotAttemptedError, TransactionalIdNotFoundError
from kafka.protocol.admin.transactions import DescribeTransactionsRequest
from kafka.protocol.producer.transaction import AddPartitionsToTxnRequest

from exactly_once_kafka.errors import Undecidable
from exactly_once_kafka.executors.coordinator import Coordinator
from exactly_once_kafka.executors.record_batch import ProducerId
from exactly_once_kafka.executors.undecided import Partition, Undecided, by_topic
from exactly_once_kafka.options import LOGGER
from exactly_once_kafka.patience import Patience

FATES = {"CompleteCommit": True, "CompleteAbort": False, "Empty": None}  # was the last transaction committed?
BY_CLIENTS = 3  # version of AddPartitionsToTxn; later ones are for brokers alone
TOPIC = AddPartitionsToTxnRequest.AddPartitionsToTxnTopic


class Last(NamedTuple):
    """The last transaction of a transactional id; `committed` is None if that is not known, or not yet."""

    producer_id: int
    committed: bool | None
    is_complete: bool = True


class LeftOpen:
    """Looks after the partitions of `topic` (None: of every topic) and the marker's. Any thread may use it.

    Raises KafkaException, TimeoutError, Undecidable, and what `patience` raises.
    """

    def __init__(self, coordinator: Coordinator, topic: str | None):
        self.coordinator = coordinator
        topics = (topic, coordinator.marker_topic)
        self._undecided = Undecided([each for each in topics if each is not None], anywhere=topic is None)
        self._lock = threading.RLock()

    def fence(self, patience: Patience) -> ProducerId:
        """Get a new epoch, which ends what older ones left open, and see that all of it has ended."""
        with self._alone():
            last, found, producer = self.coordinator.patiently(lambda: self._fence(patience), patience)
            return self._end(found, last, producer, patience) if found else producer

    def settle(self, patience: Patience) -> None:
        """Wait until the last transaction is complete, and end what was left open of it, by a new epoch."""

        def is_left() -> bool:
            last = self._last(patience)
            if last and not last.is_complete:
                raise ConcurrentTransactionsError("the last transaction has not come to its end")
            return bool(last and self._open(last, patience))

        with self._alone():
            if self.coordinator.suffices(patience) and self.coordinator.patiently(is_left, patience):
                self.fence(patience.anew())

    def ended(
        self,
        producer: ProducerId,
        committed: bool,
        following: ProducerId,
        patience: Patience,
        wrote: Collection[Partition] = (),
    ) -> ProducerId:
        """See that the transaction of `producer` has ended wherever it `wrote`; return the epoch to go on with.

        `following` is the epoch that its end gave. Where it does not say where it wrote, that may be anywhere.
        """
        last = Last(producer.id, committed)
        partitions = {*wrote, (self.coordinator.marker_topic, 0)} if wrote else ()

        def left() -> list[Partition]:
            if not self._open(last, patience, partitions):
                return []
            now = self._last(patience)
            if now and not now.is_complete:
                raise ConcurrentTransactionsError("the end of the transaction is on its way")
            return self._open(last, patience, partitions)

        with self._alone():
            found = self.coordinator.patiently(left, patience)
            return self._end(found, last, following, patience) if found else following

    def rest(self) -> None:
        """Give up the connections."""
        with self._lock:
            self.coordinator.rest()

    @contextlib.contextmanager
    def _alone(self) -> Iterator[None]:
        """Be the only thread at it. After an error begin anew, by the addresses that were given."""
        with self._lock:
            try:
                yield
            except Exception:
                self.coordinator.rest()
                raise

    def _fence(self, patience: Patience) -> tuple[Last | None, list[Partition], ProducerId]:
        """Get a new epoch. While a transaction is open, that has it aborted, and is to be tried again."""
        last = self._last(patience)
        found = self._open(last, patience) if last and last.is_complete else []
        if last and found and last.committed is None:
            raise Undecidable(_where(found))
        producer = self.coordinator.fence_once(patience)
        if last and not last.is_complete and (missed := self._open(last, patience)):
            raise Undecidable(_where(missed))  # it came to its end between the two questions
        return last, found, producer

    def _end(self, found: list[Partition], last: Last, producer: ProducerId, patience: Patience) -> ProducerId:
        """End what was found as the transaction was that it is of, and return the epoch that this gives.

        A transaction ends with all that its producer has open in its partitions, also if it wrote nothing there itself.
        """
        if producer.id != last.producer_id or not patience.lasts():
            raise Undecidable(_where(found))
        name, committed = self.coordinator.name, bool(last.committed)
        how = "committed" if committed else "aborted"
        LOGGER.warning("sink %r: Kafka had left open, in %s, what was %s; it is ended now", name, _where(found), how)
        self.coordinator.patiently(lambda: self._enrol(found, producer, patience), patience)
        following = self.coordinator.end(producer, committed, patience.anew())
        return self.ended(producer, committed, following, patience, found)

    def _enrol(self, partitions: list[Partition], producer: ProducerId, patience: Patience) -> None:
        request = AddPartitionsToTxnRequest(
            version=BY_CLIENTS,
            v3_and_below_transactional_id=self.coordinator.name,
            v3_and_below_producer_id=producer.id,
            v3_and_below_producer_epoch=producer.epoch,
            v3_and_below_topics=[TOPIC(name=name, partitions=which) for name, which in by_topic(partitions).items()],
        )
        self.coordinator.ask_once(request, patience, _why_not_enrolled)

    def _last(self, patience: Patience) -> Last | None:
        """Return the last transaction, or None if there was none, or so long ago that Kafka has forgotten it."""
        request = DescribeTransactionsRequest(version=0, transactional_ids=[self.coordinator.name])
        try:
            answer = self.coordinator.ask_once(request, patience, lambda said: [said.transaction_states[0].error_code])
        except TransactionalIdNotFoundError:
            return None
        [state] = answer.transaction_states
        name = state.transaction_state
        return Last(state.producer_id, FATES.get(name), name in FATES)

    def _open(self, last: Last, patience: Patience, partitions: Collection[Partition] = ()) -> list[Partition]:
        """Return those of the partitions, or of all, in which its producer has a transaction open."""
        cluster, looked = self.coordinator.cluster, self._undecided
        leaders = looked.known_leaders(cluster, partitions) if partitions else looked.leaders(cluster, patience)
        return looked.of(last.producer_id, cluster, leaders, patience)


def _why_not_enrolled(answer: Any) -> list[int]:
    """Return the error codes of an answer to AddPartitionsToTxn, last those of partitions that had none themselves."""
    topics = answer.results_by_topic_v3_and_below
    codes = [each.partition_error_code for topic in topics for each in topic.results_by_partition]
    return sorted(codes, key=lambda code: code == OperationNotAttemptedError.errno)


def _where(partitions: list[Partition]) -> str:
    return ", ".join(f"{topic}-{partition}" for topic, partition in partitions)
