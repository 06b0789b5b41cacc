"""A reader that watches a result topic all along, as a dashboard does, while others crash."""

from __future__ import annotations

import threading
import time

from confluent_kafka import Consumer, KafkaError, TopicPartition

from labs.equipment.topics import end_offsets
from labs.evidence.audit import Result
from labs.evidence.history import Key
from labs.evidence.reader import as_result


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
        self._stopping = threading.Event()
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

    def stop(self, timeout: float = 60) -> list[Result]:
        """Read to the present end and return all that was ever seen.

        Raises TimeoutError, and ValueError for a record that is not a result.
        """
        self._ends.clear()
        self._stopping.set()
        self._thread.join(timeout)
        if self._thread.is_alive():
            raise TimeoutError(f"the watcher of {self._topic} did not reach its end within {timeout:g} s")
        self._consumer.close()
        if self._error:
            raise self._error
        return self._seen

    def _watch(self) -> None:
        try:
            self._read()
        except Exception as error:
            self._error = error

    def _read(self) -> None:
        sought = 0.0
        while not (self._stopping.is_set() and self._ends == self._next.keys()):
            for message in self._consumer.consume(1000, timeout=0.1):
                if message.error() is None:
                    self._seen.append(result := as_result(message))
                    self.distinct.add((result.window_start, result.ip))
                    self.arrivals.append(time.monotonic())
                    self._next[message.partition()] = message.offset() + 1
                    self._ends.discard(message.partition())
                elif message.error().code() == KafkaError._PARTITION_EOF:
                    self._ends.add(message.partition())
            if self._stopping.is_set() and self._ends != self._next.keys() and time.monotonic() > sought + 1:
                # An end that was reached before stays unsaid: seek, so that it is said again. The consumer's own
                # position will not do: after a seek it is unknown until the next record.
                for at in self._next.items():
                    self._consumer.seek(TopicPartition(self._topic, *at))
                sought = time.monotonic()
