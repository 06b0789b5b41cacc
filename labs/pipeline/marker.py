"""The batch marker: which micro-batch a sink committed last.

It is a consumer-group offset, because Kafka can put exactly one thing besides records into a transaction:
offsets. Group = the sink's name, topic partition = (the sink's topic, 0), offset = batch id, metadata = the
id of the streaming query. No consumer is ever a member of the group.
"""

from __future__ import annotations

import time
from dataclasses import dataclass

from confluent_kafka import (
    Consumer,
    ConsumerGroupTopicPartitions,
    KafkaError,
    KafkaException,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient

from labs.pipeline.sink_errors import SinkRefused

CONNECTION_OPTIONS = ("security.", "sasl.", "ssl.", "client.", "socket.", "broker.address.", "enable.ssl.")

# The group's coordinator is being made (the first group of a new Kafka) or has moved to another broker; or a
# transaction on the marker is undecided; or nothing was heard.
NO_ANSWER_YET = {
    KafkaError._TIMED_OUT,
    KafkaError.NOT_COORDINATOR,
    KafkaError.COORDINATOR_NOT_AVAILABLE,
    KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
    KafkaError.UNSTABLE_OFFSET_COMMIT,
    KafkaError._TRANSPORT,
}

ASK_AGAIN = 2  # seconds, because a Kafka that refuses the connection is otherwise heard of only at the timeout
NO_ENTRY = {KafkaError._AUTHENTICATION, KafkaError._SSL, KafkaError._RESOLVE}


@dataclass(frozen=True)
class Marker:
    """Batch `batch_id` of the streaming query `query_id` was the last to be committed."""

    batch_id: int
    query_id: str


def is_committed(
    marker: Marker | None, name: str, batch_id: int, query_id: str, refusal: type[SinkRefused] = SinkRefused
) -> bool:
    """Tell whether sink `name` committed the batch before. Raises `refusal` where the marker does not fit."""
    if marker is None and batch_id == 0:
        return False
    if marker is None:
        found = refusal.no_marker
    elif marker.query_id != query_id:
        found = f"batch {marker.batch_id} was committed by another query ({marker.query_id})"
    elif marker.batch_id in (batch_id - 1, batch_id):
        return marker.batch_id == batch_id
    else:
        found = f"the last batch committed is {marker.batch_id}"
    raise refusal(name, batch_id, query_id, found)


class MarkerStore:
    """Reads and writes the marker of the sink `name`. `options` are librdkafka's; the connection's are used."""

    def __init__(self, name: str, topic: str, bootstrap_servers: str, options: dict[str, str | int]):
        self.name, self._at = name, (topic, 0)
        connection = {k: v for k, v in options.items() if k.startswith(CONNECTION_OPTIONS)}
        self._connection = {"bootstrap.servers": bootstrap_servers, "log_level": 0, **connection}
        self._consumer: Consumer | None = None
        self._refusal: KafkaError | None = None  # why no connection is made, which a timeout does not say

    def read(self, stable: bool = True, timeout: float = 30) -> Marker | None:
        """Return the committed marker, or None if there is none (any more).

        A stable read waits until no transaction on the marker is undecided, for `timeout` seconds at most;
        an unstable one returns what was committed last. Raises KafkaException.
        """
        self._refusal = None
        consumer = self._reader() if stable else Consumer(self._settings("read_uncommitted"))
        deadline = time.monotonic() + timeout
        try:
            while True:
                try:
                    [found] = consumer.committed([TopicPartition(*self._at)], timeout=min(timeout, ASK_AGAIN))
                    if found.error:
                        raise KafkaException(found.error)
                    break
                except KafkaException as error:
                    consumer.poll(0)  # tells error_cb
                    no_answer_yet = error.args[0].code() in NO_ANSWER_YET and time.monotonic() < deadline
                    if self._refusal or not no_answer_yet:
                        raise KafkaException(self._refusal or error.args[0]) from error
                    time.sleep(0.1)
        finally:
            if not stable:
                consumer.close()
        return Marker(found.offset, found.metadata or "") if found.offset >= 0 else None

    def send(self, marker: Marker, producer: Producer, timeout: float) -> None:
        """Make the marker part of the producer's open transaction."""
        group = self._reader().consumer_group_metadata()
        producer.send_offsets_to_transaction([self._partition(marker)], group, timeout)

    def overwrite(self, marker: Marker) -> None:
        """Set the marker outside of any transaction: an operator's decision."""
        request = ConsumerGroupTopicPartitions(self.name, [self._partition(marker)])
        admin = AdminClient(self._connection)
        for future in admin.alter_consumer_group_offsets([request]).values():
            for partition in future.result().topic_partitions:
                if partition.error:
                    raise KafkaException(partition.error)

    def _partition(self, marker: Marker) -> TopicPartition:
        return TopicPartition(*self._at, marker.batch_id, metadata=marker.query_id)

    def _reader(self) -> Consumer:
        if self._consumer is None:
            self._consumer = Consumer(self._settings("read_committed"))
        return self._consumer

    def _settings(self, isolation_level: str) -> dict[str, str | int | bool]:
        return {
            **self._connection,
            "group.id": self.name,
            "isolation.level": isolation_level,
            "enable.auto.commit": False,
            "error_cb": self._note,
        }

    def _note(self, error: KafkaError) -> None:
        if error.code() in NO_ENTRY:
            self._refusal = error
