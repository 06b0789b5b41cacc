"""Where a producer has a transaction open, whatever its coordinator believes: the leaders of the partitions say so.

Where it has committed the offset of a consumer group, that one's coordinator does.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator
from typing import Any

from confluent_kafka import KafkaError, KafkaException
from kafka.errors import (
    GroupAuthorizationFailedError,
    LeaderNotAvailableError,
    NoError,
    TopicAuthorizationFailedError,
    UnknownTopicOrPartitionError,
    UnstableOffsetCommitError,
    for_code,
)
from kafka.protocol.admin.transactions import DescribeProducersRequest
from kafka.protocol.consumer import OffsetFetchRequest
from kafka.protocol.metadata import CoordinatorType, MetadataRequest

from exactly_once_kafka.executors.cluster import Cluster
from exactly_once_kafka.options import LOGGER
from exactly_once_kafka.patience import Patience

Partition = tuple[str, int]
Leaders = dict[Partition, int]  # node ids

AT_ONCE = 20  # partitions of a request
TOPIC = DescribeProducersRequest.TopicRequest
ONE_GROUP = 7  # version of OffsetFetch; later ones ask for several groups
TOPIC_OF_GROUP = OffsetFetchRequest.OffsetFetchRequestTopic


class Undecided:
    """Looks at the partitions of `topics`, and of all others too if there may be rows `anywhere`.

    Raises errors of kafka.errors, some of which pass, and what `patience` raises.
    """

    def __init__(self, topics: Iterable[str], anywhere: bool):
        self._topics, self._anywhere = set(topics), anywhere
        self._unseen = set[str]()  # topics that this user may not read

    def of(
        self,
        producer_id: int,
        cluster: Cluster,
        partitions: Collection[Partition] | None,
        patience: Patience,
        itself: bool = False,
    ) -> dict[Partition, int]:
        """Return those of the partitions, or of all, in which the producer has a transaction open, and its epoch there.

        `itself`: the cluster has written to them, so that whom it takes for a leader has what there is to be seen.
        """
        leaders = self._known(cluster, partitions) if itself and partitions is not None else None
        if leaders is None:
            leaders = self._leaders(cluster, partitions, patience)
        seen = {each: leader for each, leader in leaders.items() if each[0] not in self._unseen}
        try:
            return {
                (topic.name, each.partition_index): producer.producer_epoch
                for answer in cluster.ask_all(_requests(seen), patience)
                for topic in answer.topics
                for each in topic.partitions
                if self._is_seen(topic.name, each)
                for producer in each.active_producers
                if producer.producer_id == producer_id and producer.current_txn_start_offset >= 0
            }
        except Exception:
            cluster.look_again()  # they may not lead any more what they were asked about
            raise

    def _known(self, cluster: Cluster, partitions: Collection[Partition]) -> Leaders | None:
        """Return who leads the partitions by what is known of the cluster, which may be old; None if not of all."""
        leaders = {each: cluster.leader(*each) for each in partitions}
        known = {each: leader for each, leader in leaders.items() if leader is not None}
        return known if len(known) == len(leaders) else None

    def _leaders(self, cluster: Cluster, partitions: Collection[Partition] | None, patience: Patience) -> Leaders:
        """Ask who leads the partitions, or all. Those of topics that are gone are left out.

        So are those without a leader, unless they are among the partitions or of its own topics.
        """
        names = self._topics if partitions is None else {topic for topic, _ in partitions}
        topics = [MetadataRequest.MetadataRequestTopic(name=each) for each in names]
        everything = self._anywhere and partitions is None
        request = MetadataRequest(topics=None if everything else topics, allow_auto_topic_creation=False)
        leaders = Leaders()
        for topic in cluster.ask(request, None, patience).topics:
            for each in topic.partitions:
                partition = topic.name, each.partition_index
                if topic.is_internal or not (partitions is None or partition in partitions):
                    continue
                if each.leader_id >= 0:
                    leaders[partition] = each.leader_id
                elif partitions is not None or topic.name in self._topics:
                    raise LeaderNotAvailableError(f"nobody leads {topic.name}-{each.partition_index}")
        return leaders

    def _is_seen(self, topic: str, partition: Any) -> bool:
        error = for_code(partition.error_code)
        if error is TopicAuthorizationFailedError:
            if topic not in self._unseen:
                LOGGER.warning(
                    "not allowed to READ topic %r, to see whether Kafka left rows of a sink open there", topic
                )
            self._unseen.add(topic)
        elif error is not NoError and (topic in self._topics or error is not UnknownTopicOrPartitionError):
            raise error(f"{topic}-{partition.partition_index}: {error.description}")
        return error is NoError


def is_offset_undecided(group: str, partition: Partition, cluster: Cluster, patience: Patience) -> bool:
    """Tell whether a transaction has committed an offset for the group that its coordinator takes for undecided.

    Raises what Undecided does, and KafkaException if this user may not READ the group.
    """
    name, number = partition
    topics = [TOPIC_OF_GROUP(name=name, partition_indexes=[number])]
    request = OffsetFetchRequest(version=ONE_GROUP, group_id=group, topics=topics, require_stable=True)
    try:
        answer = cluster.ask(request, cluster.coordinator(group, patience, CoordinatorType.GROUP), patience)
        codes = [answer.error_code, *(each.error_code for topic in answer.topics for each in topic.partitions)]
        errors = {for_code(code) for code in codes} - {NoError}
        for error in errors - {UnstableOffsetCommitError}:
            raise error(f"group {group!r}: {error.description}")
        return bool(errors)
    except GroupAuthorizationFailedError as error:
        raise KafkaException(KafkaError(error.errno, f"not allowed to READ group {group!r}")) from error


def by_topic(partitions: Iterable[Partition]) -> dict[str, list[int]]:
    """Return the numbers of the partitions of each topic."""
    topics = defaultdict[str, list[int]](list)
    for topic, partition in partitions:
        topics[topic].append(partition)
    return topics


def _requests(leaders: Leaders) -> Iterator[tuple[int, DescribeProducersRequest]]:
    """Yield what to ask whom: of few partitions each, for the answer names all that wrote there in the last day."""
    led = defaultdict[int, list[Partition]](list)
    for partition, leader in leaders.items():
        led[leader].append(partition)
    for leader, partitions in led.items():
        for start in range(0, len(partitions), AT_ONCE):
            topics = by_topic(partitions[start : start + AT_ONCE])
            asked = [TOPIC(name=topic, partition_indexes=numbers) for topic, numbers in topics.items()]
            yield leader, DescribeProducersRequest(version=0, topics=asked)
