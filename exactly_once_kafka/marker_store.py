"""A sink's marker: a record in a compacted topic, written in the same transaction as the rows.

Key = the sink's name; value = JSON {batch_id, query_id, plan}, which any consumer can read. A compacted topic keeps
the newest record of each key forever, so a query may be stopped for any time. The newest record counts, even if no
transaction wrote it: a mirror or a backup copies markers as plain records.

Without a marker the sink may write only batch 0, and only if nothing was ever published. A topic without a marker
proves that nothing was published only if it is the topic that the query began with. So the sink notes the topic's id in
the checkpoint before it publishes anything (`KafkaTransport.look`).
"""

from __future__ import annotations

import contextlib
import json
import time
from typing import Any, cast

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition

from exactly_once_kafka.deadline import SLICE, Deadline, QueryStopped
from exactly_once_kafka.errors import NO_ANSWER_YET, NO_SUCH_TOPIC, Absence, Refusal, root_error, with_operation
from exactly_once_kafka.marker_topic import MarkerTopic, MarkerTopicUnsafe
from exactly_once_kafka.plan import spelled
from exactly_once_kafka.producer import aborting_on_failure, acknowledged, commit
from exactly_once_kafka.producer_options import connection_settings
from exactly_once_kafka.protocol import ADOPTED, Marker

LONG_SLICE = 1  # seconds: a group's coordinator, or a partition's leader, may have to be found first
MOST_SLICES = 8  # seconds: the longest wait in one piece, for a leader that is slow
READER = {
    "isolation.level": "read_committed",
    "enable.auto.commit": False,
    "auto.offset.reset": "error",
    "enable.partition.eof": True,
    "fetch.wait.max.ms": 1,  # at the end of the topic, the leader need not wait for more records
    "fetch.error.backoff.ms": 50,
    "enable.sparse.connections": False,
}
FIELDS = {"batch_id", "query_id", "plan"}
WHY_LATE = "Kafka does not answer, or a transaction of another sink that shares the topic is still open"


class Unreadable(MarkerTopicUnsafe):
    """The newest record with the sink's key is not a marker; `before` is the last marker before it, or None."""

    def __init__(self, message: str, before: Marker | None = None):
        super().__init__(message)
        self.before = before


class MarkerStore:
    """Reads and writes the marker of the sink `name`. `options` are librdkafka's; only those of the connection count.

    Raises KafkaException, TimeoutError, MarkerTopicUnsafe, Unreadable, and whatever `deadline` raises.
    """

    def __init__(self, name: str, topic: str, bootstrap_servers: str, options: dict[str, Any]):
        self.name = name
        self._refusal = Refusal()
        self._connection = {
            "bootstrap.servers": bootstrap_servers,
            "log_level": 0,
            "error_cb": self._refusal.note,
            **connection_settings(options),
        }
        self.topic = MarkerTopic(topic, self._connection, self._refusal)
        self._consumer: Consumer | None = None
        self._position: int = OFFSET_BEGINNING
        self._last: Marker | None = None
        self._no_marker: str | None = None  # why the newest record is not a marker, if it is not

    def disconnect(self) -> None:
        """Close the connections; the next read opens new ones."""
        self._consumer = None
        self.topic.disconnect()

    def forget(self) -> None:
        """Forget what was read. The next read begins at the start of the topic, which may be a new one of this name."""
        self._position, self._last, self._no_marker = OFFSET_BEGINNING, None, None

    def is_gone(self, deadline: Deadline) -> bool:
        """Tell whether Kafka says that the marker's topic does not exist."""
        with contextlib.suppress(KafkaException, TimeoutError, MarkerTopicUnsafe, QueryStopped):
            return self.topic.id(deadline) is None
        return False

    def read(self, deadline: Deadline, undecided: bool = False) -> Marker | None:
        """Return the committed marker, or None if there is none.

        First wait until every transaction that is open in the topic now has ended. With `undecided`, do not wait, and
        return the last marker before the first open transaction.
        """
        while self._consumer is not None and self._consumer.poll(0) is not None:
            pass  # the client tells of errors only when asked: those of an idle time are over, or come again
        self._refusal.ask_again()
        try:
            self._read_on(deadline, undecided)
        except BaseException:
            self.forget()
            raise
        if self._no_marker:
            raise Unreadable(self._no_marker, self._last)
        return self._last

    def send(self, marker: Marker, producer: Producer, deadline: Deadline) -> None:
        """Make the marker part of the producer's open transaction, and wait until it is acknowledged."""
        failures: list[KafkaError] = []
        failed = lambda error, _: failures.append(error)  # noqa: E731
        with root_error(producer, self.topic.name):
            producer.produce(self.topic.name, value_of(marker), key=self.name, partition=0, on_delivery=failed)
            acknowledged(producer, 1, failures, deadline, [self.topic.name])

    def overwrite(self, marker: Marker, producer: Producer, deadline: Deadline) -> None:
        """Set the marker in a transaction of its own, by an operator's decision."""
        producer.begin_transaction()
        with aborting_on_failure(producer.abort_transaction):
            self.send(marker, producer, deadline)
        commit(producer, deadline)

    def _read_on(self, deadline: Deadline, undecided: bool) -> None:
        """Read on from where the last read ended.

        Each call assigns the partition again, so that an end that an earlier fetch reported does not count.
        """
        consumer, partition = self._reader(), TopicPartition(self.topic.name, 0, self._position)
        least = 0 if undecided else self._committed_end(consumer, partition, deadline)
        absence = Absence(consumer, [self.topic.name])
        consumer.assign([partition])
        try:
            while True:
                message = consumer.poll(SLICE)
                if message is None:
                    if self._refusal.error:
                        raise KafkaException(self._refusal.error)
                    absence.look()
                    if not deadline.has_time():
                        raise TimeoutError(f"the marker in topic {self.topic.name!r} could not be read: {WHY_LATE}")
                    continue
                self._refusal.let_in()
                offset = cast(int, message.offset())
                if error := message.error():
                    # `offset` is the end of what is committed or aborted. `end`, the end of the topic, came with the
                    # same answer of the broker, or with a later one.
                    if error.code() == KafkaError._PARTITION_EOF:
                        if least is None:  # that request was refused, but reading is not: try again
                            least = self._committed_end(consumer, partition, deadline)
                        _, end = consumer.get_watermark_offsets(partition, cached=True)
                        if undecided or (least is not None and offset >= max(least, end)):
                            self._position = offset
                            return
                    elif error.code() == KafkaError._AUTO_OFFSET_RESET:  # the topic was deleted and created again
                        self.forget()
                        consumer.assign([TopicPartition(self.topic.name, 0, self._position)])
                    # librdkafka also looks for the group's coordinator, which the sink does not need. That may be
                    # refused.
                    elif error.code() not in (*NO_ANSWER_YET, KafkaError.GROUP_AUTHORIZATION_FAILED):
                        raise KafkaException(with_operation(error, f"READ topic {self.topic.name!r}"))
                elif message.key() == self.name.encode():
                    self._note(message)
        finally:
            consumer.unassign()

    def _committed_end(self, consumer: Consumer, partition: TopicPartition, deadline: Deadline) -> int | None:
        """Return the offset up to which to read the partition; None if Kafka refuses to say: then reading raises why.

        For a moment, a new leader may show fewer records to readers than the last leader did. During that time it
        answers this request with an error (KIP-207).
        """
        timeout = LONG_SLICE
        while True:
            try:
                return int(consumer.get_watermark_offsets(partition, timeout=timeout, cached=False)[1])
            except KafkaException as error:
                consumer.poll(0)  # calls error_cb
                if self._refusal.error or self._is_refused(consumer, error.args[0].code()):
                    return None
                if not deadline.has_time():
                    raise TimeoutError(
                        f"the end of topic {self.topic.name!r} could not be found: {WHY_LATE} ({error})"
                    ) from error
                time.sleep(SLICE)
                timeout = min(2 * timeout, MOST_SLICES)

    def _is_refused(self, consumer: Consumer, code: int) -> bool:
        """Tell whether the topic is missing, or this user may not read it.

        The code alone does not tell: it may also mean a partition without leader.
        """
        if code not in (KafkaError.TOPIC_AUTHORIZATION_FAILED, *NO_SUCH_TOPIC):
            return False
        with contextlib.suppress(KafkaException):
            return consumer.list_topics(self.topic.name, timeout=LONG_SLICE).topics[self.topic.name].error is not None
        return False

    def _reader(self) -> Consumer:
        if self._consumer is None:
            self._consumer = Consumer({**self._connection, **READER, "group.id": self.name})
            with contextlib.suppress(KafkaException):  # finds the leader half a second earlier
                self._consumer.list_topics(self.topic.name, timeout=SLICE)
        return self._consumer

    def _note(self, message: Message) -> None:
        try:
            self._last, self._no_marker = parsed(message.value()), None
        except ValueError as error:
            before = f" (the last marker before it: batch {self._last.batch_id})" if self._last else ""
            self._no_marker = (
                f"record {message.offset()} of the marker's topic {self.topic.name!r}, the newest with the key "
                f"{self.name!r}, is not a marker: {error}{before}"
            )


def value_of(marker: Marker) -> str:
    """Return the value of the marker's record, as JSON."""
    plan = ADOPTED if marker.plan == ADOPTED else json.loads(marker.plan)
    return json.dumps({"batch_id": marker.batch_id, "query_id": marker.query_id, "plan": plan})


def parsed(value: bytes | str | None) -> Marker:
    """Return the marker that `value_of` has written. Raises ValueError with the reason if it is not one."""
    if value is None:
        raise ValueError("its value is null (a tombstone, which deletes the marker)")
    try:
        fields = json.loads(value)
    except (ValueError, RecursionError):
        raise ValueError(f"its value is not JSON: {value!r:.100}") from None
    if not isinstance(fields, dict) or not fields.keys() >= FIELDS:
        raise ValueError(f"its value lacks one of the fields {', '.join(sorted(FIELDS))}: {value!r:.100}")
    if unknown := sorted(fields.keys() - FIELDS):
        raise ValueError(f"a newer version wrote it, with the fields {', '.join(unknown):.100}; upgrade this one")
    batch_id, query_id, plan = fields["batch_id"], fields["query_id"], fields["plan"]
    if type(batch_id) is not int or batch_id < 0 or not isinstance(query_id, str):
        raise ValueError(f"its value has no valid batch_id or query_id: {value!r:.100}")
    if not (isinstance(plan, dict) or plan == ADOPTED):
        raise ValueError(f"its field 'plan' is not a plan: {plan!r:.100}")
    return Marker(batch_id, query_id, ADOPTED if plan == ADOPTED else spelled(plan))
