"""Readers of a topic of results: to its end, as a downstream consumer would, or following it while it grows.

Judge only what `read_results` returns: it waits until every transaction has ended. `read_visible` does not wait.

The wait matters because a read_committed reader reads only up to the last stable offset. Records that were committed
behind an open transaction are hidden until that transaction ends, and visible a moment later.

`Watcher` reads a topic all the time, as a dashboard does. `Tail` and `CommittedCount` read only when `read` is called.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from functools import lru_cache
from operator import attrgetter
from typing import Any, cast

from confluent_kafka import Consumer, IsolationLevel, KafkaError, KafkaException, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec

from labs.equipment.broker_list import BrokerList
from labs.equipment.topics import end_offsets
from labs.evidence.auditor.observed import Key, Reading, Result
from labs.evidence.readers.transactions import settle
from labs.pipeline.records import SINK_TOPIC, parse_result_value

SILENCE = 60.0  # seconds without a record, before the end of the topic is reached


def in_batches(consumer: Consumer, size: int, patience: float = SILENCE) -> Iterator[list[Message]]:
    """Yield lists of `size` records of the one partition that the consumer is assigned, up to its present end.

    The last list may be shorter. The consumer needs `enable.partition.eof`. Raises KafkaException, and TimeoutError
    after `patience` seconds without a record.
    """
    batch: list[Message] = []
    while True:
        message = consumer.poll(patience)
        if message is None:
            raise TimeoutError(f"no record and no end of the topic within {patience:g} s: is the broker alive?")
        if error := message.error():
            if error.code() == KafkaError._PARTITION_EOF:
                break
            if not error.retriable():
                raise KafkaException(error)
            continue
        batch.append(message)
        if len(batch) == size:
            yield batch
            batch = []
    if batch:
        yield batch


# The lab's transactions time out after 60 s; every 10 s brokers look for those that did.
UNTIL_DECIDED = 90.0  # seconds
ANSWER = 10.0  # seconds for one answer of Kafka
BETWEEN = 0.02  # seconds
SENTINEL = b"sentinel"  # the key of a record that is no result and was written last of all


def wait_until_decided(bootstrap_servers: str, topic: str, patience: float = UNTIL_DECIDED) -> dict[int, bool]:
    """Wait until every transaction that has written to the topic by now has ended, and readers see it.

    Return partition -> whether that is so; False where a transaction is still open after `patience` seconds.
    Raises KafkaException if Kafka does not answer.
    """
    kafka = AdminClient({"bootstrap.servers": bootstrap_servers, "log_level": 0})
    deadline = time.monotonic() + patience
    ends: dict[int, int] = {}
    partitions = partitions_of(kafka, topic)
    while True:
        try:
            ends = ends or _latest(kafka, partitions, IsolationLevel.READ_UNCOMMITTED)
            stable = _latest(kafka, partitions, IsolationLevel.READ_COMMITTED)
        except KafkaException:  # such as from a broker that has just become the leader
            if time.monotonic() > deadline:
                raise
        else:
            decided = {partition: stable[partition] >= end for partition, end in ends.items()}
            if all(decided.values()) or time.monotonic() > deadline:
                return decided
        time.sleep(BETWEEN)


def write_sentinels(bootstrap_servers: str, topic: str) -> None:
    """Write a sentinel to each partition, after everything else. Raises KafkaException, TimeoutError."""
    settings = {"bootstrap.servers": bootstrap_servers, "acks": "all", "log_level": 0}
    partitions = partitions_of(AdminClient({"bootstrap.servers": bootstrap_servers, "log_level": 0}), topic)
    producer = Producer(settings)
    for at in partitions:
        producer.produce(topic, b"", SENTINEL, at.partition)
    if left := producer.flush(60):
        raise TimeoutError(f"{left} of {len(partitions)} sentinels of {topic} were not written within 60 s")


def partitions_of(kafka: AdminClient, topic: str) -> list[TopicPartition]:
    """Return the topic's partitions. Raises KafkaException if there is no such topic."""
    known = kafka.list_topics(topic, timeout=60).topics[topic]
    if known.error:
        raise KafkaException(known.error)
    return [TopicPartition(topic, partition) for partition in sorted(known.partitions)]


def _latest(kafka: AdminClient, partitions: list[TopicPartition], level: IsolationLevel) -> dict[int, int]:
    """Return per partition the last stable offset or, with READ_UNCOMMITTED, the high watermark."""
    latest = {at: OffsetSpec.latest() for at in partitions}
    answers = kafka.list_offsets(latest, isolation_level=level, request_timeout=ANSWER)
    return {at.partition: answer.result().offset for at, answer in answers.items()}


Headers = list[tuple[str, bytes | None]]  # as a consumer gets them


def read_results(
    bootstrap_servers: str,
    topic: str = SINK_TOPIC,
    isolation_level: str = "read_committed",
    timeout: float = 60,
    patience: float = UNTIL_DECIDED,
) -> Reading:
    """Wait until every transaction in the topic has ended; then return every result, by partition and offset.

    It waits `patience` seconds for a hanging transaction; the reading's `decided` is False where one hangs. With
    "read_uncommitted" it does not wait. Raises as `read_visible`.
    """
    committed = isolation_level == "read_committed"
    decided = wait_until_decided(bootstrap_servers, topic, patience) if committed else {}
    return Reading(read_visible(bootstrap_servers, topic, isolation_level, timeout), decided)


def committed_results(bootstrap_servers: str, topic: str = SINK_TOPIC) -> tuple[dict[int, bool], Iterator[Result]]:
    """Return what `read_results` does without holding it in memory: the reading's `decided`, and its results.

    The results of a partition come in their order. Raises as `read_visible`.
    """
    decided = wait_until_decided(bootstrap_servers, topic)
    return decided, _results_in(bootstrap_servers, topic, "read_committed", 60)


def read_visible(
    bootstrap_servers: str, topic: str = SINK_TOPIC, isolation_level: str = "read_committed", timeout: float = 60
) -> list[Result]:
    """Return the results that are visible at this moment, by partition and offset. Do not judge a job by them.

    With "read_committed" the end is the last stable offset: records of an open or aborted transaction are left
    out, and so are all records behind an open one. Raises TimeoutError if the end is not reached within `timeout`
    seconds without progress, KafkaException if the topic cannot be read, ValueError for a record that is not a
    result.
    """
    results = _results_in(bootstrap_servers, topic, isolation_level, timeout)
    return sorted(results, key=attrgetter("partition", "offset"))


def _results_in(bootstrap_servers: str, topic: str, isolation_level: str, timeout: float) -> Iterator[Result]:
    for record in read_to_end(bootstrap_servers, topic, isolation_level, timeout):
        if record.key() != SENTINEL:
            yield as_result(record)


def readable_sentinels(bootstrap_servers: str, topic: str) -> set[int]:
    """Return the partitions whose sentinel a read_committed reader can read. Raises as `read_to_end`."""
    records = read_to_end(bootstrap_servers, topic, "read_committed")
    return {position(record)[0] for record in records if record.key() == SENTINEL}


def read_committed(bootstrap_servers: str, topic: str) -> list[Message]:
    """Wait until all committed records are visible, then return the topic's committed records.

    It does not wait for an open transaction, which hides the records behind it. Raises as `settle` and `read_to_end`.
    """
    settle(bootstrap_servers, topic)
    return list(read_to_end(bootstrap_servers, topic, "read_committed"))


def _consumer(bootstrap_servers: str, isolation_level: str, **more: Any) -> Consumer:
    """Return a consumer that joins no group and commits no offset; `more` are further settings of confluent-kafka."""
    return Consumer(
        {
            "bootstrap.servers": bootstrap_servers,
            "group.id": "labs-reader",  # the library requires it
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            "isolation.level": isolation_level,
            "fetch.wait.max.ms": 10,  # the default reports the end of the log half a second later
            "fetch.queue.backoff.ms": 10,  # by default a reader that has 100,000 records queued pauses for a second
            "log_level": 0,
            **more,
        }
    )


def read_to_end(bootstrap_servers: str, topic: str, isolation_level: str, timeout: float = 60) -> Iterator[Message]:
    """Yield every record of the topic that a reader of this isolation level can see now.

    Records that were committed a moment ago may be missing: Kafka answers a commit before every partition knows of it.
    Raises KafkaException if the topic cannot be read, TimeoutError if its end is not reached within `timeout`
    seconds without progress.
    """
    consumer = _consumer(bootstrap_servers, isolation_level, **{"enable.partition.eof": True})
    try:
        known = consumer.list_topics(topic, timeout=timeout).topics[topic]
        if known.error:
            raise KafkaException(known.error)
        reading = set(known.partitions)
        consumer.assign([TopicPartition(topic, partition, 0) for partition in reading])
        deadline = time.monotonic() + timeout
        while reading:
            messages = consumer.consume(10_000, timeout=0.1)
            for message in messages:
                error = message.error()
                if error is None:
                    yield message
                elif error.code() == KafkaError._PARTITION_EOF:
                    reading.discard(message.partition())
                elif not error.retriable():
                    raise KafkaException(error)
            if messages:
                deadline = time.monotonic() + timeout
            elif time.monotonic() > deadline:
                raise TimeoutError(f"partitions {sorted(reading)} of {topic} could not be read to their end")
    finally:
        consumer.close()


def position(message: Message) -> tuple[int, int]:
    """Return partition and offset; every message that a consumer gets has both."""
    return cast(int, message.partition()), cast(int, message.offset())


def as_result(message: Message) -> Result:
    """Decode one record of the sink topic. Raises ValueError if it is something else."""
    try:
        batch_id, attempt, batch_rows = _evidence(tuple(cast(Headers, message.headers() or ())))
        return Result(
            *parse_result_value(message.value()),
            batch_id=batch_id,
            attempt=attempt,
            batch_rows=batch_rows,
            partition=message.partition(),
            offset=message.offset(),
        )
    except ValueError as error:
        at = f"{message.topic()}[{message.partition()}] offset {message.offset()}"
        raise ValueError(f"the record at {at}: {error}") from error


EVIDENCE = ("batch_id", "attempt", "batch_rows")


@lru_cache(maxsize=1_000)  # all records of an attempt but the last have the same headers
def _evidence(headers: tuple[tuple[str, bytes | None], ...]) -> tuple[int | None, str | None, int | None]:
    """Return batch_id, attempt and batch_rows from a record's headers. Raises ValueError for one that is no number."""
    texts = {key: (text or b"").decode() for key, text in headers if key in EVIDENCE}
    batch_id, batch_rows = (int(texts[name]) if name in texts else None for name in ("batch_id", "batch_rows"))
    return batch_id, texts.get("attempt"), batch_rows


class Tail:
    """The results so far, for a reader of this isolation level. It reads only when `read` is called."""

    def __init__(self, bootstrap_servers: str, topic: str, isolation_level: str):
        self.distinct: set[Any] = set()  # what `result_of` has returned
        self._consumer = _from_the_beginning(bootstrap_servers, topic, isolation_level)

    def read(self, seconds: float) -> None:
        """Read the new records; wait at most `seconds` for the first. Raises ValueError for one that is no result."""
        message = self._consumer.poll(seconds)
        while message is not None:
            if message.error() is None and message.key() != SENTINEL:
                self.distinct.add(self.result_of(message))
            message = self._consumer.poll(0)

    def result_of(self, message: Message) -> Any:
        """Return what makes the record's result different from others: its window start in epoch millis and its IP."""
        result = as_result(message)
        return result.window_start, result.ip

    def close(self) -> None:
        """Close the consumer."""
        self._consumer.close()


class CommittedCount:
    """The number of committed records so far. It decodes none, so as not to slow down a fast writer that is timed.

    `Tail` reads some 90,000 records a second and takes a core for it; this class ten times as many.
    """

    def __init__(self, bootstrap_servers: str, topic: str):
        self.records = 0
        self._consumer = _from_the_beginning(bootstrap_servers, topic, "read_committed")

    def read(self, seconds: float) -> None:
        """Count the new records; wait at most `seconds` for more."""
        messages = self._consumer.consume(10_000, seconds)
        self.records += sum(message.error() is None for message in messages)

    def close(self) -> None:
        """Close the consumer."""
        self._consumer.close()


def _from_the_beginning(bootstrap_servers: str, topic: str, isolation_level: str) -> Consumer:
    consumer = _consumer(bootstrap_servers, isolation_level)
    consumer.assign([TopicPartition(topic, partition, 0) for partition in end_offsets(bootstrap_servers, topic)])
    return consumer


UNANSWERED = 10  # seconds after which a consumer connects anew; by default a minute


class Watcher:
    """Reads a topic from its beginning in a thread of its own, with read_committed, until `stop()`.

    It survives the broker's restarts and keeps all that it has seen. Compared with a later reader
    (`audit(…, second_reader=…)`) it shows whether anything visible ever changed.
    """

    def __init__(self, bootstrap_servers: str, topic: str):
        self.arrivals: list[float] = []  # when each result was seen, by time.monotonic()
        self.distinct: set[Key] = set()  # (window start in epoch milliseconds, IP) of all results seen so far
        self._seen: list[Result] = []
        self._error: Exception | None = None
        self._servers, self._topic = bootstrap_servers, topic
        self._ends: set[int] = set()
        self._stopping, self._given_up = threading.Event(), threading.Event()
        self._next = dict.fromkeys(end_offsets(bootstrap_servers, topic), 0)  # partition -> the offset to read next
        self._connect()
        self._thread = threading.Thread(target=self._watch, name="watcher", daemon=True)
        self._thread.start()

    def stop(self, timeout: float = 60, patience: float = UNTIL_DECIDED) -> Reading:
        """Wait until every transaction has ended, read to the end, and return all that was ever seen.

        It waits `patience` seconds for a hanging transaction. Raises KafkaException as `wait_until_decided`,
        TimeoutError if the end is not reached within `timeout` seconds, ValueError for a record that is not a result.
        """
        try:
            decided = wait_until_decided(self._servers, self._topic, patience)
            self._stopping.set()
            self._thread.join(timeout)
            if self._thread.is_alive():
                raise TimeoutError(f"the watcher of {self._topic} did not reach its end within {timeout:g} s")
        finally:
            self._given_up.set()  # in any case the thread ends, and closes its consumer
            self._thread.join(10)
        if self._error:
            raise self._error
        return Reading(self._seen, decided)

    def _connect(self) -> None:
        """Take a new consumer, which goes on at `_next`."""
        self._broker_list = BrokerList()
        settings = {"enable.partition.eof": True, "socket.timeout.ms": UNANSWERED * 1000}
        self._consumer = _consumer(self._servers, "read_committed", **settings, **self._broker_list.settings)
        self._consumer.assign([TopicPartition(self._topic, *at) for at in self._next.items()])

    def _watch(self) -> None:
        try:
            self._read()
        except Exception as error:
            self._error = error
        finally:
            self._consumer.close()

    def _read(self) -> None:
        sought = 0.0  # when the consumer was last asked to report the ends, once no record is to come any more
        while not (self._given_up.is_set() or (sought and self._ends == self._next.keys())):
            for message in self._consumer.consume(1000, timeout=0.1):
                (partition, offset), error = position(message), message.error()
                if error is None:
                    self._next[partition] = offset + 1
                    self._ends.discard(partition)
                    if message.key() == SENTINEL:
                        continue
                    self._seen.append(result := as_result(message))
                    self.distinct.add((result.window_start, result.ip))
                    self.arrivals.append(time.monotonic())
                elif error.code() == KafkaError._PARTITION_EOF:
                    self._ends.add(partition)
            if self._broker_list.is_lost:
                self._consumer.close()
                self._connect()
            elif self._stopping.is_set() and time.monotonic() > sought + 1:
                if not sought:
                    self._ends.clear()  # what was reported before need not be the end
                # The consumer reports the end of a partition only once, but again after a seek. Its own position
                # cannot be used here: after a seek it is unknown until the next record.
                for at in self._next.items():
                    self._consumer.seek(TopicPartition(self._topic, *at))
                sought = time.monotonic()
