"""A reader that watches a result topic all along, as a dashboard does, while others crash."""

from __future__ import annotations

import threading
import time

from confluent_kafka import Consumer, KafkaError, TopicPartition

from labs.equipment.topics import end_offsets
from labs.evidence.auditor.observed import Key, Reading, Result
from labs.evidence.readers.decided import PATIENCE, SENTINEL, wait_until_decided
from labs.evidence.readers.results import as_result, position


class Watcher:
    """Reads a topic from its beginning in a thread of its own, with read_committed, until `stop()`.

    It outlives the broker's restarts. What it has seen it never unsees: compared with a reader that comes
    later (`audit(…, second_reader=…)`) it shows whether anything visible ever changed.
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
                "group.id": "labs-watcher",  # required by the library; nothing is committed and nobody joins
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
        """Wait until every transaction is decided, read to the end, and return all that was ever seen.

        A transaction that hangs is waited for `patience` seconds. Raises TimeoutError, and ValueError for a record
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
            self._given_up.set()  # whatever happened, the thread ends, and closes its consumer
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
                # An end that was reached before is not reported again unless one seeks. The consumer's own position
                # will not do: after a seek it is unknown until the next record.
                for at in self._next.items():
                    self._consumer.seek(TopicPartition(self._topic, *at))
                sought = time.monotonic()
