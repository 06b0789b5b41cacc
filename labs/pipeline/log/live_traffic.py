"""A thread that sends accesses into the source topic at a given rate, while the pipeline runs and crashes."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Iterable
from contextlib import closing
from typing import cast

from confluent_kafka import KafkaError, Message
from kafka import KafkaConsumer, TopicPartition, errors

from labs.equipment.broker_list import BrokerList
from labs.pipeline.log.access_log import Access
from labs.pipeline.log.replay import SourceFailed, close_windows, source_producer
from labs.pipeline.records import SOURCE_TOPIC, parse_source_value, source_value, window_start

TICK = 0.02  # seconds
PATIENCE_MS = 600_000  # a record waits that long for a broker to come back
READING = 10  # seconds
PURGED = KafkaError._PURGE_QUEUE, KafkaError._PURGE_INFLIGHT


class LiveTraffic:
    """Sends `rate` accesses a second as source records, from now until `stop`. Nobody else may write to the topic.

    `sent` and `acknowledged` count per access (event time, IP): what was sent and not acknowledged is indeterminate.
    If its client loses its brokers for good (`broker_list`), what it then finds in the topic counts as acknowledged.
    With a larger `window_ms` they count per window (its start, IP) instead, which takes less memory in a long run.
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
        self._waiting: dict[int, Access] = {}  # number -> what was sent and not acknowledged, in this order
        self._next: Counter[int] = Counter()  # partition -> the offset after the last acknowledged record
        self._connect()
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
        """Send no more, wait for acknowledgements (`timeout` seconds), send closing records. Raises SourceFailed."""
        self.close()
        if self._error:
            raise SourceFailed(f"the traffic stopped by itself: {self._error}") from self._error
        deadline = time.monotonic() + timeout
        while (not self._repair() or self._producer.flush(1)) and time.monotonic() < deadline:
            pass
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
                    if (access := next(self._accesses, None)) is None:
                        raise ValueError("there are no more accesses to send")
                    self._send(*access)
                    due -= 1
                self._producer.poll(0)
                self._repair()
        except Exception as error:
            self._error = error

    def _send(self, time_ms: int, ip: str) -> None:
        while not self._stopping.is_set():
            if not self._repair():
                self._stopping.wait(TICK)
                continue
            try:
                self._produce(self.records, (time_ms, ip))
            except BufferError:  # the queue is full, because the broker is away: wait
                self._producer.poll(0.1)
                continue
            self.sent[self._counted(time_ms, ip)] += 1
            self.records += 1
            self.last_time_ms = max(self.last_time_ms, time_ms)
            return

    def _produce(self, number: int, access: Access) -> None:
        def delivered(error: KafkaError | None, message: Message) -> None:
            if error is not None and error.code() in PURGED:
                return  # `_repair` looks for it in the topic
            del self._waiting[number]
            if error is None:
                self.acknowledged[self._counted(*access)] += 1
                partition, offset = cast(int, message.partition()), message.offset()
                if offset is not None:
                    self._next[partition] = max(self._next[partition], offset + 1)

        self._producer.produce(self._topic, source_value(*access), access[1], on_delivery=delivered)
        self._waiting[number] = access

    def _counted(self, time_ms: int, ip: str) -> Access:
        return window_start(time_ms, self.window_ms), ip

    def _connect(self) -> None:
        self._broker_list = BrokerList()
        settings = {"message.timeout.ms": PATIENCE_MS, "delivery.report.only.error": False}
        self._producer = source_producer(self._servers, **settings, **self._broker_list.settings)

    def _repair(self) -> bool:
        """Replace the producer if it has lost its brokers. Return False if that has to wait until a broker answers.

        What the old producer has stored is in the topic, and counts as acknowledged. The new one sends the rest.
        """
        if not self._broker_list.is_lost:
            return True
        self._producer.purge()  # its records would wait for ever
        self._producer.poll(0)
        try:
            stored = self._stored_last()
        except errors.KafkaError:
            return False
        waiting, self._waiting = self._waiting, {}
        self._connect()
        for number, access in waiting.items():
            if stored[access]:
                stored[access] -= 1
                self.acknowledged[self._counted(*access)] += 1
            else:
                self._produce(number, access)
        return True

    def _stored_last(self) -> Counter[tuple[int, str] | tuple[None, None]]:
        """Count, per access, the records of the topic after the last acknowledged one. Raises kafka-python's errors."""
        stored: Counter[tuple[int, str] | tuple[None, None]] = Counter()
        settings = {"bootstrap_servers": self._servers, "bootstrap_timeout_ms": READING * 1000}
        with closing(KafkaConsumer(enable_auto_commit=False, **settings)) as consumer:
            if not (partitions := consumer.partitions_for_topic(self._topic)):
                raise errors.KafkaTimeoutError(f"no partition of {self._topic} is known at {self._servers}")
            ends = consumer.end_offsets([TopicPartition(self._topic, each) for each in partitions])
            consumer.assign(ends)
            for at in ends:
                consumer.seek(at, self._next[at.partition])
            deadline = time.monotonic() + READING
            while any(consumer.position(at) < end for at, end in ends.items()):
                for records in consumer.poll(timeout_ms=100).values():
                    stored.update(parse_source_value(record.value) for record in records)
                if time.monotonic() > deadline:
                    raise errors.KafkaTimeoutError(f"{self._topic} could not be read to its end within {READING} s")
        for at, end in ends.items():
            self._next[at.partition] = end
        return stored
