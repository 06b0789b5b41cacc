"""A workaround for KAFKA-20734: Kafka can call a transaction complete and leave rows of it open.

If a partition has no leader when a transaction ends, the coordinator of Kafka 4.3.1 treats the partition as deleted,
and never writes there that the transaction was committed or aborted. The rows stay open until a later transaction of
the same producer ends in that partition, and are committed or aborted with that one. So rows of an aborted transaction
can become visible, and committed rows can be lost. This module asks the partitions' leaders for such rows. It commits
them if their transaction was committed, and aborts them if it was aborted.

Limitations: it does not check partitions that this user may not READ. If the rows name their topics, it also does not
check partitions without a leader. The repair takes three requests: a new epoch, the enrolment of the partitions, and
EndTxn. If the driver dies, or the coordinator is away for long, after the enrolment and before EndTxn, committed rows
are lost. If that happens after the new epoch and before the enrolment, Kafka no longer knows whether the rows were
committed, and the sink refuses the next batch.
"""

from __future__ import annotations

import contextlib
import functools
import math
import threading
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator
from typing import Any, NamedTuple

from confluent_kafka import KafkaException
from kafka.errors import (
    ConcurrentTransactionsError,
    LeaderNotAvailableError,
    NoError,
    OperationNotAttemptedError,
    TopicAuthorizationFailedError,
    TransactionalIdNotFoundError,
    UnknownTopicOrPartitionError,
    for_code,
)
from kafka.protocol.admin.transactions import DescribeProducersRequest, DescribeTransactionsRequest
from kafka.protocol.metadata import MetadataRequest
from kafka.protocol.producer.transaction import AddPartitionsToTxnRequest

from exactly_once_kafka.deadline import Deadline
from exactly_once_kafka.errors import OutcomeUnknown
from exactly_once_kafka.kafka_client.cluster import Cluster
from exactly_once_kafka.kafka_client.record_batch import ProducerId
from exactly_once_kafka.kafka_client.settings import kafka_python_settings
from exactly_once_kafka.kafka_client.transaction_coordinator import Coordinator
from exactly_once_kafka.producer_options import CHECK_SKIPPED, LOGGER

Partition = tuple[str, int]
Leaders = dict[Partition, int]  # node ids

AT_ONCE = 20  # partitions in a request
TO_DESCRIBE = DescribeProducersRequest.TopicRequest


class OpenTransactionScanner:
    """Finds the partitions in which a producer has a transaction open: in `topics`, or in all topics if `anywhere`.

    Raises errors of kafka.errors, some of them retriable, and what `deadline` raises.
    """

    def __init__(self, topics: Iterable[str], anywhere: bool):
        self._topics, self._anywhere = set(topics), anywhere
        self._unseen = set[str]()  # topics that this user may not read

    def of(
        self,
        producer_id: int,
        cluster: Cluster,
        partitions: Collection[Partition] | None,
        deadline: Deadline,
        leaders_known: bool = False,
    ) -> dict[Partition, int]:
        """Return the producer's epoch in each of the partitions (None: of all) in which it has a transaction open.

        `leaders_known`: this client has written to the partitions, so the leaders that it knows can be asked.
        """
        leaders = self._known(cluster, partitions) if leaders_known and partitions is not None else None
        if leaders is None:
            leaders = self._leaders(cluster, partitions, deadline)
        seen = {each: leader for each, leader in leaders.items() if each[0] not in self._unseen}
        try:
            return {
                (topic.name, each.partition_index): producer.producer_epoch
                for answer in cluster.ask_all(_requests(seen), deadline)
                for topic in answer.topics
                for each in topic.partitions
                if self._is_seen(topic.name, each)
                for producer in each.active_producers
                if producer.producer_id == producer_id and producer.current_txn_start_offset >= 0
            }
        except Exception:
            cluster.refresh_metadata()  # the leaders may have changed
            raise

    def _known(self, cluster: Cluster, partitions: Collection[Partition]) -> Leaders | None:
        """Return the leaders of the partitions by the last metadata; None if one of them is not known."""
        leaders = {each: cluster.leader(*each) for each in partitions}
        known = {each: leader for each, leader in leaders.items() if leader is not None}
        return known if len(known) == len(leaders) else None

    def _leaders(self, cluster: Cluster, partitions: Collection[Partition] | None, deadline: Deadline) -> Leaders:
        """Request the leaders of the partitions (None: of all). Partitions of deleted topics are left out.

        A partition without leader is left out too; if `partitions` or `topics` has it, it raises
        LeaderNotAvailableError.
        """
        names = self._topics if partitions is None else {topic for topic, _ in partitions}
        topics = [MetadataRequest.MetadataRequestTopic(name=each) for each in names]
        everything = self._anywhere and partitions is None
        request = MetadataRequest(topics=None if everything else topics, allow_auto_topic_creation=False)
        leaders = Leaders()
        for topic in cluster.ask(request, None, deadline).topics:
            asked = partitions is not None or topic.name in self._topics
            error = for_code(topic.error_code)
            if error is TopicAuthorizationFailedError:
                self._cannot_see(topic.name)
            elif asked and error not in (NoError, UnknownTopicOrPartitionError):  # unknown: it was deleted
                raise error(f"{topic.name}: {error.description}")
            for each in topic.partitions:
                partition = topic.name, each.partition_index
                if topic.is_internal or not (partitions is None or partition in partitions):
                    continue
                if each.leader_id >= 0:
                    leaders[partition] = each.leader_id
                elif asked:
                    raise LeaderNotAvailableError(f"no leader for {topic.name}-{each.partition_index}")
        return leaders

    def _is_seen(self, topic: str, partition: Any) -> bool:
        error = for_code(partition.error_code)
        if error is TopicAuthorizationFailedError:
            self._cannot_see(topic)
        elif error is not NoError and (topic in self._topics or error is not UnknownTopicOrPartitionError):
            raise error(f"{topic}-{partition.partition_index}: {error.description}")
        return error is NoError

    def _cannot_see(self, topic: str) -> None:
        if topic not in self._unseen:
            LOGGER.warning(
                "not allowed to READ topic %r: cannot check whether Kafka left rows of a sink open there", topic
            )
        self._unseen.add(topic)


def by_topic(partitions: Iterable[Partition]) -> dict[str, list[int]]:
    """Return the partition numbers by topic."""
    topics = defaultdict[str, list[int]](list)
    for topic, partition in partitions:
        topics[topic].append(partition)
    return topics


def _requests(leaders: Leaders) -> Iterator[tuple[int, DescribeProducersRequest]]:
    """Yield requests grouped by leader, for few partitions each: an answer has all producers of the last day."""
    led = defaultdict[int, list[Partition]](list)
    for partition, leader in leaders.items():
        led[leader].append(partition)
    for leader, partitions in led.items():
        for start in range(0, len(partitions), AT_ONCE):
            topics = by_topic(partitions[start : start + AT_ONCE])
            asked = [TO_DESCRIBE(name=topic, partition_indexes=numbers) for topic, numbers in topics.items()]
            yield leader, DescribeProducersRequest(version=0, topics=asked)


COMPLETE = {"CompleteCommit": True, "CompleteAbort": False, "Empty": None}  # was the last transaction committed?
ENDING = ("PrepareCommit", "PrepareAbort")  # states before a transaction is complete
AHEAD = {"CompleteCommit": 1, "CompleteAbort": 2}  # the end of a transaction raises its epoch by at most so much
BY_CLIENTS = 3  # version of AddPartitionsToTxn; later ones are for brokers alone
TO_ENROL = AddPartitionsToTxnRequest.AddPartitionsToTxnTopic


class Last(NamedTuple):
    """The last transaction of a transactional id. Its end may have raised the producer's epoch by up to `ahead`."""

    producer: ProducerId
    state: str
    ahead: float = 0

    @property
    def committed(self) -> bool | None:
        """Tell whether it was committed or aborted; None if it has not ended, or if Kafka no longer knows."""
        return COMPLETE.get(self.state)


class OpenTransactionRepair:
    """Ends open transactions in the partitions of `topic` (None: of every topic) and the marker's. Thread-safe.

    Raises KafkaException, TimeoutError, OutcomeUnknown, and what `deadline` raises.
    """

    def __init__(self, coordinator: Coordinator, topic: str | None):
        self.coordinator = coordinator
        topics = (topic, coordinator.marker_topic)
        self._scanner = OpenTransactionScanner([each for each in topics if each is not None], anywhere=topic is None)
        self._found: tuple[Last, list[Partition]] | None = None  # must be ended under the new epoch
        self._lock = threading.RLock()

    def supports_txn_v2(self, deadline: Deadline) -> bool:
        """Tell whether the cluster gives the next epoch with the end of each transaction."""
        with self._alone():
            return self.coordinator.supports_txn_v2(deadline)

    def fence(self, deadline: Deadline) -> ProducerId:
        """Get a new epoch, which aborts an open transaction. Make sure that the last transaction ended everywhere."""
        with self._alone():
            producer: ProducerId = self.coordinator.retry(lambda: self._fence(deadline), deadline)
            if self._found:
                producer = self._end(*self._found, producer, deadline)
                self._found = None
            return producer

    def ensure_ended(self, deadline: Deadline, abort: bool = False) -> None:
        """Make sure that the last complete transaction has ended in every partition, by a new epoch if necessary.

        A transaction that is still open is left alone; with `abort`, a new epoch aborts it.
        """

        def is_left() -> bool:
            last = self._last_at_rest(deadline)
            if last is None or last.state not in COMPLETE:
                return bool(last and abort)
            if not self._open(last, None, deadline):
                return False
            return self._last(deadline) == last  # otherwise a new transaction has begun since

        with self._alone():
            if self.coordinator.retry(is_left, deadline):
                self.fence(deadline.restarted())

    def finish_everywhere(
        self,
        producer: ProducerId,
        committed: bool,
        following: ProducerId,
        deadline: Deadline,
        wrote: Collection[Partition] | None = None,
        leaders_known: bool = False,
    ) -> ProducerId:
        """Make sure that the complete transaction of `producer` has ended in each partition that it `wrote` to.

        Return the epoch to continue with: `following`, which the end of the transaction gave, or a newer one if rows
        were still open. If `wrote` is None, check all partitions. `leaders_known`: this process wrote to them.
        """
        last = Last(producer, "CompleteCommit" if committed else "CompleteAbort")
        partitions = None if wrote is None else {*wrote, (self.coordinator.marker_topic, 0)}
        with self._alone():
            found = self._remaining(last, partitions, deadline, leaders_known)
            return self._end(last, found, following, deadline) if found else following

    def disconnect(self) -> None:
        """Close the connections; the next request opens new ones."""
        with self._lock:
            self.coordinator.disconnect()

    def close(self) -> None:
        """Close the connections for good."""
        with self._lock:
            self.coordinator.cluster.close()

    @contextlib.contextmanager
    def _alone(self) -> Iterator[None]:
        """Hold the lock. After an error, disconnect: the next request begins with the bootstrap addresses."""
        with self._lock:
            try:
                yield
            except Exception:
                self.coordinator.disconnect()
                raise

    def _fence(self, deadline: Deadline) -> ProducerId:
        """Get a new epoch, and note what must be ended.

        If a transaction is open, Kafka aborts it and answers with a retriable error.
        """
        last = self._last_at_rest(deadline)
        if last and last.state in COMPLETE:
            self._note(last, self._open(last, None, deadline))
        deadline.has_time()  # raises if the query was stopped, which must not fence its next run
        # This request makes Kafka forget how the last transaction ended. If rows were found, the answer is needed to
        # end them. So wait for it even if the query is stopped.
        producer = self.coordinator.fence_once(Deadline(deadline.seconds) if self._found else deadline)
        if last and last.state not in COMPLETE:
            self._note(last, self._open(last, None, deadline))  # the transaction ended between the two requests
        return producer

    def _note(self, last: Last, found: list[Partition]) -> None:
        """Note in which partitions `last` must be ended, and how.

        If a new epoch has made Kafka forget how `last` ended, keep what was noted before, even if nothing is found now:
        the scanner may have left out a partition without leader.
        """
        if last.committed is None:
            if self._found and self._found[0].producer.id == last.producer.id:
                return
            if found:
                raise OutcomeUnknown(_where(found))
        self._found = (last, found) if found else None

    def _end(self, last: Last, found: list[Partition], producer: ProducerId, deadline: Deadline) -> ProducerId:
        """Commit or abort the rows in the partitions `found`, as `last` was, and return the epoch that this gives.

        The end of a transaction also ends older open rows of its producer in the enrolled partitions. A stop of the
        query does not interrupt this, since Kafka would abort partitions that are enrolled and not ended.
        """
        if producer.id != last.producer.id:
            raise OutcomeUnknown(_where(found))
        committed, deadline = bool(last.committed), Deadline(deadline.seconds)
        how = "committed" if committed else "aborted"
        while found:
            name, where = self.coordinator.name, _where(found)
            LOGGER.warning("sink %r: Kafka left rows open in %s that were %s: ending them", name, where, how)
            self.coordinator.retry(functools.partial(self._enrol, found, producer, deadline), deadline)
            producer = self.coordinator.end(producer, committed, deadline)
            found = self._remaining(last, found, deadline)
        return producer

    def _remaining(
        self, last: Last, partitions: Collection[Partition] | None, deadline: Deadline, leaders_known: bool = False
    ) -> list[Partition]:
        """Return the partitions in which the transaction is open although Kafka reports it as complete."""

        def remaining() -> list[Partition]:
            if not self._open(last, partitions, deadline, leaders_known):
                return []
            self._last_at_rest(deadline)
            return self._open(last, partitions, deadline)

        found: list[Partition] = self.coordinator.retry(remaining, deadline)
        return found

    def _enrol(self, partitions: list[Partition], producer: ProducerId, deadline: Deadline) -> None:
        request = AddPartitionsToTxnRequest(
            version=BY_CLIENTS,
            v3_and_below_transactional_id=self.coordinator.name,
            v3_and_below_producer_id=producer.id,
            v3_and_below_producer_epoch=producer.epoch,
            v3_and_below_topics=[TO_ENROL(name=name, partitions=which) for name, which in by_topic(partitions).items()],
        )
        self.coordinator.ask_once(request, deadline, _why_not_enrolled)

    def _last(self, deadline: Deadline) -> Last | None:
        """Return the last transaction, or None if there was none, or so long ago that Kafka has forgotten it."""
        request = DescribeTransactionsRequest(version=0, transactional_ids=[self.coordinator.name])
        try:
            answer = self.coordinator.ask_once(request, deadline, lambda said: [said.transaction_states[0].error_code])
        except TransactionalIdNotFoundError:
            return None
        [state] = answer.transaction_states
        name = state.transaction_state
        return Last(ProducerId(state.producer_id, state.producer_epoch), name, AHEAD.get(name, math.inf))

    def _last_at_rest(self, deadline: Deadline) -> Last | None:
        """Return the last transaction. Raises ConcurrentTransactionsError while it is being ended."""
        last = self._last(deadline)
        if last and last.state in ENDING:
            raise ConcurrentTransactionsError("the transaction is being ended")
        return last

    def _open(
        self, last: Last, partitions: Collection[Partition] | None, deadline: Deadline, leaders_known: bool = False
    ) -> list[Partition]:
        """Return in which of the partitions (None: of all) `last` is open. Raises OutcomeUnknown if an older one is."""
        found = self._scanner.of(last.producer.id, self.coordinator.cluster, partitions, deadline, leaders_known)
        if older := [each for each, epoch in found.items() if last.producer.epoch - epoch > last.ahead]:
            raise OutcomeUnknown(_where(older))
        return list(found)


def repair_of(name: str, settings: dict[str, Any], marker_topic: str, topic: str | None) -> OpenTransactionRepair:
    """Return the repair for a sink. `settings` are the producer's, by librdkafka's names.

    Raises ValueError for one that kafka-python does not support.
    """
    connection, timeout_ms = kafka_python_settings(settings), int(settings["transaction.timeout.ms"])
    return OpenTransactionRepair(Coordinator(name, connection, marker_topic, timeout_ms), topic)


def ensure_transaction_ended(
    name: str, settings: dict[str, Any], marker_topic: str, topic: str | None, deadline: Deadline, *, abort: bool
) -> None:
    """Make sure that the last transaction of `name` has ended everywhere, before librdkafka gets an epoch.

    A new epoch makes Kafka forget how that transaction ended. If kafka-python cannot connect, log a warning and skip
    this. Raises what OpenTransactionRepair raises.
    """
    try:
        repair = repair_of(name, settings, marker_topic, topic)
    except ValueError as error:
        LOGGER.warning(CHECK_SKIPPED, name, error)
        return
    with contextlib.closing(repair):
        try:
            supports_txn_v2 = repair.supports_txn_v2(deadline)
        except KafkaException as error:
            LOGGER.warning(CHECK_SKIPPED, name, error)
            return
        if supports_txn_v2:
            repair.ensure_ended(deadline, abort)


def _why_not_enrolled(answer: Any) -> list[int]:
    """Return the error codes of an answer to AddPartitionsToTxn; last those that only follow from another error."""
    topics = answer.results_by_topic_v3_and_below
    codes = [each.partition_error_code for topic in topics for each in topic.results_by_partition]
    return sorted(codes, key=lambda code: code == OperationNotAttemptedError.errno)


def _where(partitions: Iterable[Partition]) -> str:
    return ", ".join(f"{topic}-{partition}" for topic, partition in partitions)
