"""Where a sink keeps its marker: a record in a compacted topic, in the same transaction as the rows.

Key = the sink's name; value = JSON {batch_id, query_id, plan}, which any consumer can read. A compacted topic keeps
the newest record of each key for good, so that a query may rest as long as it likes. The newest counts, whoever brought
it there: a mirror or a backup writes markers as plain records, with no commit behind each.
"""

from __future__ import annotations

import contextlib
import json
import time
from typing import Any, cast

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition

from exactly_once_kafka.batch import ADOPTED, REAL_TIME, Marker
from exactly_once_kafka.cause import Absence, named, true_cause
from exactly_once_kafka.errors import NO_SUCH_TOPIC
from exactly_once_kafka.marker_topic import NO_ANSWER_YET, Forgetful, MarkerTopic, Refusal
from exactly_once_kafka.options import connection_settings
from exactly_once_kafka.patience import SLICE, Patience
from exactly_once_kafka.plan import spelled
from exactly_once_kafka.producer import aborting_on_failure, commit
from exactly_once_kafka.send import acknowledged

LONG_SLICE = 1  # seconds: a group's coordinator, or a partition's leader, may have to be found first
MOST_SLICES = 8  # seconds: for a leader that is slow
READER = {
    "isolation.level": "read_committed",
    "enable.auto.commit": False,
    "auto.offset.reset": "error",
    "enable.partition.eof": True,
    "fetch.wait.max.ms": 1,  # the end of the topic is what is looked for, not what might still come
    "fetch.error.backoff.ms": 50,
    "enable.sparse.connections": False,
}
FIELDS = {"batch_id", "query_id", "plan"}


class Unreadable(Forgetful):
    """The newest record under the sink's key is no marker; `before` is the one that came before it, if there is one."""

    def __init__(self, message: str, before: Marker | None = None):
        super().__init__(message)
        self.before = before


class MarkerStore:
    """Reads and writes the marker of the sink `name`. `options` are librdkafka's; the connection's are used.

    `old_topic` is the sink's own topic, by which versions before 1.0 filed their marker. Raises KafkaException,
    TimeoutError, Forgetful, Unreadable, and whatever `patience` raises.
    """

    def __init__(
        self, name: str, topic: str, bootstrap_servers: str, options: dict[str, Any], old_topic: str | None = None
    ):
        self.name, self._old_topic = name, old_topic
        self._refusal = Refusal()
        self._connection = {
            "bootstrap.servers": bootstrap_servers,
            "log_level": 0,
            "error_cb": self._refusal.note,
            **connection_settings(options),
        }
        self.topic = MarkerTopic(topic, self._connection, self._refusal)
        self._consumer: Consumer | None = None
        self._no_group = False
        self._position: int = OFFSET_BEGINNING
        self._last: Marker | None = None
        self._no_marker: str | None = None  # why the newest record is none

    def rest(self) -> None:
        """Give up the connections; who reads again opens others."""
        self._consumer = None
        self.topic.rest()

    def read(self, patience: Patience, undecided: bool = False) -> Marker | None:
        """Return the committed marker, or None if there is none.

        It waits until all that was in the topic when it began is decided; with `undecided`, it returns what was
        committed last before the first open transaction.
        """
        self._refusal.ask_again()
        try:
            self._read_on(patience, undecided)
        except BaseException:
            self._forget()
            raise
        if self._no_marker:
            raise Unreadable(self._no_marker, self._last)
        return self._last or self.read_old(patience)

    def read_old(self, patience: Patience) -> Marker | None:
        """Return the marker that versions before 1.0 kept, as the offset of a consumer group, or None.

        The group was the sink's name, the partition the sink's topic's first, the metadata the query's id.
        """
        if self._old_topic is None:
            return None
        while not self._no_group:  # who may not read the group cannot have kept a marker there
            try:
                [found] = self._reader().committed([TopicPartition(self._old_topic, 0)], timeout=LONG_SLICE)
                if found.error:
                    raise KafkaException(found.error)
                return Marker(found.offset, found.metadata) if found.offset >= 0 and found.metadata else None
            except KafkaException as error:
                code = error.args[0].code()
                if code in (KafkaError.GROUP_AUTHORIZATION_FAILED, *NO_SUCH_TOPIC):
                    return None
                self._hear(self._reader().poll(0))  # tells error_cb too
                if self._refusal.error or code not in NO_ANSWER_YET or not patience.lasts():
                    why = named(error.args[0], f"WRITE to topic {self._old_topic!r}")
                    raise KafkaException(self._refusal.error or why) from error
                time.sleep(SLICE)
        return None

    def send(self, marker: Marker, producer: Producer, patience: Patience) -> None:
        """Make the marker part of the producer's open transaction, and wait until it is acknowledged."""
        failures: list[KafkaError] = []
        failed = lambda error, _: failures.append(error)  # noqa: E731
        with true_cause(producer, self.topic.name):
            producer.produce(self.topic.name, value_of(marker), key=self.name, partition=0, on_delivery=failed)
            acknowledged(producer, 1, failures, patience, [self.topic.name])

    def overwrite(self, marker: Marker, producer: Producer, patience: Patience) -> None:
        """Set the marker in a transaction of its own: an operator's decision."""
        producer.begin_transaction()
        with aborting_on_failure(producer.abort_transaction):
            self.send(marker, producer, patience)
        commit(producer, patience)

    def _read_on(self, patience: Patience, undecided: bool) -> None:
        """Read from where the last reading came to an end.

        Each reading asks for the partition anew, so that nothing is taken for its end that was asked for earlier.
        """
        consumer, partition = self._reader(), TopicPartition(self.topic.name, 0, self._position)
        least = 0 if undecided else self._committed_end(consumer, partition, patience)
        absence = Absence(consumer, [self.topic.name])
        consumer.assign([partition])
        try:
            while True:
                message = consumer.poll(SLICE)
                if message is None:
                    if self._refusal.error:
                        raise KafkaException(self._refusal.error)
                    absence.look()
                    if not patience.lasts():
                        raise TimeoutError(f"the marker in topic {self.topic.name!r} could not be read: {self._why()}")
                    continue
                self._refusal.let_in()
                offset = cast(int, message.offset())
                if error := self._hear(message):
                    # The end of what is decided. The end of the topic came with the same answer, or a later one.
                    if error.code() == KafkaError._PARTITION_EOF:
                        if undecided or offset >= max(least, self._shown_end(consumer, partition)):
                            self._position = offset
                            return
                    elif error.code() == KafkaError._AUTO_OFFSET_RESET:  # it is another topic by now
                        self._forget()
                        consumer.assign([TopicPartition(self.topic.name, 0, self._position)])
                    elif error.code() not in (*NO_ANSWER_YET, KafkaError.GROUP_AUTHORIZATION_FAILED):
                        raise KafkaException(named(error, f"READ topic {self.topic.name!r}"))
                elif message.key() == self.name.encode():
                    self._note(message)
        finally:
            consumer.unassign()

    def _committed_end(self, consumer: Consumer, partition: TopicPartition, patience: Patience) -> int:
        """Return an offset up to which the partition is to be read; 0 where reading will meet what stands against it.

        A new leader may show less, for a moment, than was committed under the last one. It gives no end then (KIP-207).
        """
        timeout = LONG_SLICE
        while True:
            try:
                return int(consumer.get_watermark_offsets(partition, timeout=timeout, cached=False)[1])
            except KafkaException as error:
                self._hear(consumer.poll(0))  # tells error_cb too
                if self._refusal.error or self._is_refused(consumer, error.args[0].code()):
                    return 0
                if not patience.lasts():
                    raise TimeoutError(
                        f"the end of topic {self.topic.name!r} could not be found: {self._why()} ({error})"
                    ) from error
                time.sleep(SLICE)
                timeout = min(2 * timeout, MOST_SLICES)

    def _is_refused(self, consumer: Consumer, code: int) -> bool:
        """Tell whether the topic is not there, or not for this user. A partition without a leader is unknown, too."""
        if code not in (KafkaError.TOPIC_AUTHORIZATION_FAILED, *NO_SUCH_TOPIC):
            return False
        with contextlib.suppress(KafkaException):
            return consumer.list_topics(self.topic.name, timeout=LONG_SLICE).topics[self.topic.name].error is not None
        return False

    def _shown_end(self, consumer: Consumer, partition: TopicPartition) -> int:
        """Return the end that the last answer showed."""
        return int(consumer.get_watermark_offsets(partition, cached=True)[1])

    def _hear(self, message: Message | None) -> KafkaError | None:
        """Return the error of a message, if it is one; and note that the group is closed to this user."""
        error = message.error() if message is not None else None
        self._no_group |= bool(error and error.code() == KafkaError.GROUP_AUTHORIZATION_FAILED)
        return error

    def _reader(self) -> Consumer:
        if self._consumer is None:
            self._consumer = Consumer({**self._connection, **READER, "group.id": self.name})
            with contextlib.suppress(KafkaException):  # where the partition is, half a second before it would be asked
                self._consumer.list_topics(self.topic.name, timeout=SLICE)
        return self._consumer

    def _why(self) -> str:
        return "Kafka does not answer, or a transaction of another sink that shares the topic is still open"

    def _note(self, message: Message) -> None:
        try:
            self._last, self._no_marker = parsed(message.value()), None
        except ValueError as error:
            before = f" (the last marker before it: batch {self._last.batch_id})" if self._last else ""
            self._no_marker = (
                f"record {message.offset()} of the marker's topic {self.topic.name!r}, the newest with the key "
                f"{self.name!r}, is no marker: {error}{before}"
            )

    def _forget(self) -> None:
        self._position, self._last, self._no_marker = OFFSET_BEGINNING, None, None


def value_of(marker: Marker) -> str:
    """Return the value of the record that is the marker."""
    plan = marker.plan if marker.plan in (None, ADOPTED) else json.loads(marker.plan)
    return json.dumps({"batch_id": marker.batch_id, "query_id": marker.query_id, "plan": plan})


def parsed(value: bytes | str | None) -> Marker:
    """Return the marker that `value_of` has written. Raises ValueError, which says why it is none."""
    if value is None:
        raise ValueError("its value is null (a tombstone, which deletes the marker)")
    try:
        fields = json.loads(value)
    except (ValueError, RecursionError):
        raise ValueError(f"its value is not JSON: {value!r:.100}") from None
    if not isinstance(fields, dict) or not fields.keys() >= FIELDS:
        raise ValueError(f"its value has not the fields {', '.join(sorted(FIELDS))}: {value!r:.100}")
    if unknown := sorted(fields.keys() - FIELDS):
        raise ValueError(f"a newer version wrote it, with the fields {', '.join(unknown):.100}; upgrade this one")
    batch_id, query_id, plan = fields["batch_id"], fields["query_id"], fields["plan"]
    if type(batch_id) is not int or batch_id < 0 or not isinstance(query_id, str):
        raise ValueError(f"its value has no number of a batch, or no id of a query: {value!r:.100}")
    if not (plan is None or isinstance(plan, dict) or plan in (ADOPTED, json.loads(REAL_TIME))):
        raise ValueError(f"its plan is none: {plan!r:.100}")
    return Marker(batch_id, query_id, plan if plan in (None, ADOPTED) else spelled(plan))
