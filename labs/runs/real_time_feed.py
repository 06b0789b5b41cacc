"""What comes into the source of a query in Real-Time Mode: records that are all different, at a steady rate."""

from __future__ import annotations

import itertools
import threading

from confluent_kafka import Producer

from labs.pipeline.records import source_value

PARTITIONS = 2
RATE = 100  # records per second
PATIENCE = 60  # seconds for the last acknowledgement


class Feed:
    """Sends a record every 10 ms, to each partition in turn, until it is closed; no two are the same."""

    def __init__(self, servers: str, topic: str):
        self.sent: dict[tuple[int, str], int] = {}
        self._producer = Producer({"bootstrap.servers": servers, "enable.idempotence": True, "linger.ms": 0})
        self._topic, self._over = topic, threading.Event()
        self._thread = threading.Thread(target=self._send, name="feed", daemon=True)
        self._thread.start()

    def _send(self) -> None:
        for number in itertools.count(1):
            if self._over.wait(1 / RATE):
                return
            partition = number % PARTITIONS
            ip = f"10.0.0.{partition}"
            self.sent[number, ip] = 1
            self._producer.produce(self._topic, source_value(number, ip), partition=partition)
            self._producer.poll(0)

    def close(self) -> None:
        """Stop, and wait until all that was sent is acknowledged."""
        self._over.set()
        self._thread.join()
        if left := self._producer.flush(PATIENCE):
            raise TimeoutError(f"{left} records of the feed were not acknowledged")
