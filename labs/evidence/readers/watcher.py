"""Readers that follow a result topic: `Watcher` all the time, as a dashboard does, the others when they are told to."""

from __future__ import annotations

import threading
import time
from typing import Any

from confluent_kafka import Consumer, KafkaError, Message, TopicPartition

from labs.equipment.topics import end_offsets
from labs.evidence.auditor.observed import Key, Reading, Result
from labs.evidence.readers.results import PATIENCE, SENTINEL, as_result, position, wait_until_decided


class Tail:
    """The results so far, for a reader of this isolation level. It reads only when `read` is called."""

    def __init__(self, bootstrap_servers: str, topic: str, isolation_level: str):
        self.distinct: set[Any] = set()  # what `result_of` has returned
        self._consumer = _consumer(bootstrap_servers, topic, isolation_level)

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
        self._consumer = _consumer(bootstrap_servers, topic, "read_committed")

    def read(self, seconds: float) -> None:
        """Count the new records; wait at most `seconds` for more."""
        messages = self._consumer.consume(10_000, seconds)
        self.records += sum(message.error() is None for message in messages)

    def close(self) -> None:
        """Close the consumer."""
        self._consumer.close()


def _consumer(bootstrap_servers: str, topic: str, isolation_level: str) -> Consumer:
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap_servers,
            "group.id": "labs-tail",  # the library requires it; no offset is committed, and no group is joined
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            "isolation.level": isolation_level,
            "fetch.wait.max.ms": 10,
            "fetch.queue.backoff.ms": 10,  # by default a reader that has 100,000 records queued pauses for a second
            "log_level": 0,
        }
    )
    consumer.assign([TopicPartition(topic, partition, 0) for partition in end_offsets(bootstrap_servers, topic)])
    return consumer


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
        self._consumer = Consumer(
            {
                "bootstrap.servers": bootstrap_servers,
                "group.id": "labs-watcher",  # the library requires it; no offset is committed, and no group is joined
                "enable.auto.commit": False,
                "auto.offset.reset": "earliest",
                "isolation.level": "read_committed",
                "enable.partition.eof": True,
                "fetch.wait.max.ms": 10,
                "log_level": 0,
            }
        )
        self._consumer.assign([TopicPartition(topic, *at) for at in self._next.items()])
        self._thread = threading.Thread(target=self._watch, name="watcher", daemon=True)
        self._thread.start()

    def stop(self, timeout: float = 60, patience: float = PATIENCE) -> Reading:
        """Wait until every transaction has ended, read to the end, and return all that was ever seen.

        It waits `patience` seconds for a hanging transaction. Raises TimeoutError, and ValueError for a record
        that is not a result.
        """
        try:
            decided = wait_until_decided(self._servers, self._topic, patience)
            self._ends.clear()
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

    def _watch(self) -> None:
        try:
            self._read()
        except Exception as error:
            self._error = error
        finally:
            self._consumer.close()

    def _read(self) -> None:
        sought = 0.0
        while not (self._given_up.is_set() or (self._stopping.is_set() and self._ends == self._next.keys())):
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
            if self._stopping.is_set() and self._ends != self._next.keys() and time.monotonic() > sought + 1:
                # The consumer reports an end only once, unless one seeks. Its own position does not serve here: after
                # a seek it is unknown until the next record.
                for at in self._next.items():
                    self._consumer.seek(TopicPartition(self._topic, *at))
                sought = time.monotonic()
