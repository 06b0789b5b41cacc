"""Where a producer has a transaction open: the leaders of the partitions say so, whatever its coordinator believes."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from typing import Any

from kafka.errors import (
    LeaderNotAvailableError,
    NoError,
    TopicAuthorizationFailedError,
    UnknownTopicOrPartitionError,
    for_code,
)
from kafka.protocol.admin.transactions import DescribeProducersRequest
from kafka.protocol.metadata import MetadataRequest

from exactly_once_kafka.executors.cluster import Cluster
from exactly_once_kafka.options import LOGGER
from exactly_once_kafka.patience import Patience

Partition = tuple[str, int]
Leaders = dict[Partition, int]  # node ids

TOPIC = DescribeProducersRequest.TopicRequest


class Undecided:
    """Looks at the partitions of `topics`, and of all others too if there may be rows `anywhere`.

    Raises errors of kafka.errors, some of which pass, and what `patience` raises.
    """

    def __init__(self, topics: Iterable[str], anywhere: bool):
        self._topics, self._anywhere = set(topics), anywhere
        self._unseen = set[str]()  # topics that this user may not read

    def leaders(self, cluster: Cluster, patience: Patience) -> Leaders:
        """Return who leads the partitions. Of other topics than its own, those without a leader are left out."""
        topics = [MetadataRequest.MetadataRequestTopic(name=each) for each in self._topics]
        request = MetadataRequest(topics=None if self._anywhere else topics, allow_auto_topic_creation=False)
        leaders = Leaders()
        for topic in cluster.ask(request, None, patience).topics:
            for each in topic.partitions:
                if each.leader_id >= 0 and not topic.is_internal:
                    leaders[topic.name, each.partition_index] = each.leader_id
                elif topic.name in self._topics:
                    raise LeaderNotAvailableError(f"nobody leads {topic.name}-{each.partition_index}")
        return leaders

    def known_leaders(self, cluster: Cluster, partitions: Iterable[Partition]) -> Leaders:
        """Return who leads partitions that were written to."""
        leaders = Leaders()
        for topic, partition in partitions:
            cluster.follow(topic)
            if (leader := cluster.leader(topic, partition)) is None:
                cluster.look_again()
                raise LeaderNotAvailableError(f"nobody leads {topic}-{partition}")
            leaders[topic, partition] = leader
        return leaders

    def of(self, producer_id: int, cluster: Cluster, leaders: Leaders, patience: Patience) -> list[Partition]:
        """Return the partitions in which the producer has a transaction open."""
        led = defaultdict[int, list[Partition]](list)
        for partition, leader in leaders.items():
            if partition[0] not in self._unseen:
                led[leader].append(partition)
        requests = {leader: _request(partitions) for leader, partitions in led.items()}
        return [
            (topic.name, each.partition_index)
            for answer in cluster.ask_all(requests, patience)
            for topic in answer.topics
            for each in topic.partitions
            if self._is_seen(topic.name, each, cluster) and _has_open(each, producer_id)
        ]

    def _is_seen(self, topic: str, partition: Any, cluster: Cluster) -> bool:
        error = for_code(partition.error_code)
        if error is TopicAuthorizationFailedError:
            if topic not in self._unseen:
                LOGGER.warning(
                    "not allowed to READ topic %r, to see whether Kafka left rows of a sink open there", topic
                )
            self._unseen.add(topic)
        elif error is not NoError and (topic in self._topics or error is not UnknownTopicOrPartitionError):
            cluster.look_again()
            raise error(f"{topic}-{partition.partition_index}: {error.description}")
        return error is NoError


def by_topic(partitions: Iterable[Partition]) -> dict[str, list[int]]:
    """Return the numbers of the partitions of each topic."""
    topics = defaultdict[str, list[int]](list)
    for topic, partition in partitions:
        topics[topic].append(partition)
    return topics


def _request(partitions: Iterable[Partition]) -> DescribeProducersRequest:
    topics = [TOPIC(name=topic, partition_indexes=numbers) for topic, numbers in by_topic(partitions).items()]
    return DescribeProducersRequest(version=0, topics=topics)


def _has_open(partition: Any, producer_id: int) -> bool:
    return any(
        each.producer_id == producer_id and each.current_txn_start_offset >= 0 for each in partition.active_producers
    )
