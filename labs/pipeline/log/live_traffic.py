"""Live traffic: a thread sends accesses at a given rate, while the pipeline runs and crashes."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Iterable

from confluent_kafka import KafkaError, Message

from labs.pipeline.log.access_log import Access
from labs.pipeline.log.replay import SourceFailed, close_windows, source_producer
from labs.pipeline.records import SOURCE_TOPIC, source_value, window_start

TICK = 0.02  # seconds
PATIENCE_MS = 600_000  # a record waits that long for a broker to come back


class LiveTraffic:
    """Sends `rate` accesses a second as source records, from now until `stop`.

    `sent` and `acknowledged` count per access (event time, IP): what was sent and not acknowledged is indeterminate.
    With `window_ms` they count per window (its start, IP) instead, so that they grow only with the windows.
    """

    def __init__(
        self,
        accesses: Iterable[Access],
        bootstrap_servers: str,
        topic: str = SOURCE_TOPIC,
        rate: float = 1_000.0,
        window_ms: int = 1,
    ):
        self.sent: Counter[Access] = Counter()
        self.acknowledged: Counter[Access] = Counter()
        self.records = 0  # sent so far
        self.last_time_ms = 0  # the latest event time sent so far
        self.window_ms = window_ms
        self._accesses, self._servers, self._topic, self._rate = iter(accesses), bootstrap_servers, topic, rate
        self._stopping = threading.Event()
        self._error: Exception | None = None
        self._producer = source_producer(
            bootstrap_servers, **{"message.timeout.ms": PATIENCE_MS, "delivery.report.only.error": False}
        )
        self._thread = threading.Thread(target=self._run, name="traffic", daemon=True)
        self._thread.start()

    @property
    def indeterminate(self) -> Counter[Access]:
        """The accesses that were sent and never acknowledged."""
        return self.sent - self.acknowledged

    def set_rate(self, rate: float, accesses: Iterable[Access] | None = None) -> None:
        """Send `rate` a second from now on, none at 0. If `accesses` are given, they come next."""
        if accesses is not None:
            self._accesses = iter(accesses)
        self._rate = rate

    def stop(self, timeout: float = 60) -> None:
        """Send no more, wait for the acknowledgements, and close the windows. Raises SourceFailed."""
        self.close()
        if self._error:
            raise SourceFailed(f"the traffic stopped by itself: {self._error}") from self._error
        self._producer.flush(timeout)
        close_windows(self.last_time_ms, self._servers, self._topic)

    def close(self) -> None:
        """Send no more, and do not wait for acknowledgements."""
        self._stopping.set()
        self._thread.join()

    def _run(self) -> None:
        try:
            due, last = 0.0, time.monotonic()
            while not self._stopping.wait(TICK):
                now = time.monotonic()
                due, last = (due + (now - last) * self._rate) if self._rate else 0.0, now
                while due >= 1 and not self._stopping.is_set():
                    self._send(*next(self._accesses))
                    due -= 1
                self._producer.poll(0)
        except Exception as error:
            self._error = error

    def _send(self, time_ms: int, ip: str) -> None:
        access = (window_start(time_ms, self.window_ms), ip)

        def delivered(error: KafkaError | None, _: Message) -> None:
            if error is None:
                self.acknowledged[access] += 1

        while True:
            try:
                self._producer.produce(self._topic, source_value(time_ms, ip), ip, on_delivery=delivered)
                break
            except BufferError:  # the queue is full, because the broker is away: wait
                self._producer.poll(0.1)
        self.sent[access] += 1
        self.records += 1
        self.last_time_ms = max(self.last_time_ms, time_ms)
