"""Sends accesses into the source topic, one record each, with the IP as its key.

`replay` sends all of them as fast as it can. `LiveTraffic` is a thread that sends at a given rate, while the pipeline
runs and crashes.

`in_event_time_order` sorts with bounded memory, by a stable external merge. Sorted runs go to temporary files and are
merged. Input that fits in memory never touches the disk. The files have no name (on POSIX), so they are gone when the
iterator ends, is closed, or its process is killed.
"""

from __future__ import annotations

import os
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from heapq import merge
from itertools import chain, islice
from operator import itemgetter
from typing import IO

from confluent_kafka import KafkaError, Message, Producer

from labs.equipment.topics import end_offsets
from labs.pipeline.log.access_log import Access
from labs.pipeline.records import CLOSING_DELAY_MS, CLOSING_IP, SOURCE_TOPIC, source_value, window_start

FAN_IN = 32  # runs merged at once; three levels of them are still under the 256 open files that macOS allows
BUFFER_BYTES = 64 * 1024  # per open run

_event_time = itemgetter(0)


class SortFailed(OSError):
    """The sorted runs could not be written or read back."""


def in_event_time_order(
    accesses: Iterable[Access],
    max_in_memory: int = 2_000_000,
    directory: str | os.PathLike[str] | None = None,
) -> Generator[Access, None, None]:
    """Return an iterator over the accesses by time; those of the same time keep their order.

    Holds at most `max_in_memory` accesses (about 100 bytes each). The rest waits in `directory` (default: the
    system's temporary directory), about 30 bytes each. Raises SortFailed when that cannot be written.
    """
    if max_in_memory < 1:
        raise ValueError(f"max_in_memory is {max_in_memory}; sorting needs at least 1 access in memory")
    return _merge_sort(iter(accesses), max_in_memory, directory)


def _merge_sort(
    accesses: Iterator[Access], max_in_memory: int, directory: str | os.PathLike[str] | None
) -> Generator[Access, None, None]:
    spilled = _SpilledRuns(directory)
    try:
        run = sorted(islice(accesses, max_in_memory), key=_event_time)
        for first in accesses:
            spilled.add(run)
            run.clear()  # before the next run is read: one in memory, not two
            run = sorted(chain([first], islice(accesses, max_in_memory - 1)), key=_event_time)
        yield from merge(*spilled.read(), run, key=_event_time)
    finally:
        spilled.close()


class _SpilledRuns:
    """Sorted runs in temporary files; FAN_IN files of one level become one file of the next."""

    def __init__(self, directory: str | os.PathLike[str] | None):
        self.directory = directory
        self.levels: list[list[IO[str]]] = []

    def add(self, run: Iterable[Access], level: int = 0) -> None:
        if level == len(self.levels):
            self.levels.append([])
        files = self.levels[level]
        files.append(self._write(run))
        if len(files) == FAN_IN:
            self.add(merge(*map(_read, files), key=_event_time), level + 1)
            _close(files)

    def read(self) -> list[Iterator[Access]]:
        """Return the runs in the order of their input, which keeps the merge stable."""
        return [_read(file) for files in reversed(self.levels) for file in files]

    def close(self) -> None:
        for files in self.levels:
            _close(files)

    def _write(self, run: Iterable[Access]) -> IO[str]:
        try:
            with ExitStack() as on_failure:
                file = on_failure.enter_context(
                    tempfile.TemporaryFile("w+", BUFFER_BYTES, "utf-8", "\n", dir=self.directory)
                )
                file.writelines(f"{time_ms},{ip}\n" for time_ms, ip in run)
                file.seek(0)
                on_failure.pop_all()
                return file
        except OSError as error:
            where = self.directory or tempfile.tempdir
            raise SortFailed(
                f"cannot keep sorted runs in {where}: {error.strerror or error}; expected room for "
                "30 bytes per access: make some, or set TMPDIR to a directory that has it"
            ) from error


def _read(file: IO[str]) -> Iterator[Access]:
    for line in file:
        time_ms, ip = line.split(",", 1)
        yield int(time_ms), ip[:-1]


def _close(files: list[IO[str]]) -> None:
    while files:
        with suppress(OSError):  # of a last flush to a full disk
            files.pop().close()


LONGEST_WAIT = 60  # seconds without an acknowledgement


class SourceFailed(RuntimeError):
    """The source topic could not be written."""


@dataclass
class Replay:
    """How many accesses were sent, and how many of those the broker acknowledged."""

    sent: int = 0
    acknowledged: int = 0
    last_time_ms: int = 0
    errors: list[str] = field(default_factory=list)


def replay(
    accesses: Iterable[Access],
    bootstrap_servers: str,
    topic: str = SOURCE_TOPIC,
    progress: Callable[[int], object] = lambda sent: None,
    **options: str | int,
) -> Replay:
    """Send each access as a source record, in the order given, and wait for every acknowledgement.

    `progress` is called with the number sent every 10,000 records; `options` are producer settings with `_`
    for `.`. Failed records are listed in the result; after 1,000 of them, no more accesses are sent. Raises
    SourceFailed if no record was acknowledged, or if Kafka takes none for a minute.
    """
    report = Replay()

    def failed(error: KafkaError | None, message: Message) -> None:
        report.errors.append(str(error))

    settings: dict[str, str | int] = {"linger.ms": 50, "queue.buffering.max.messages": 200_000}
    settings |= {key.replace("_", "."): value for key, value in options.items()}
    producer = source_producer(bootstrap_servers, **settings)
    produce, poll = producer.produce, producer.poll
    sent = last = 0
    try:
        for sent, (time_ms, ip) in enumerate(accesses, start=1):
            if time_ms > last:
                last = time_ms
            try:
                produce(topic, source_value(time_ms, ip), ip, on_delivery=failed)
            except BufferError:  # the queue is full
                for _ in range(LONGEST_WAIT):
                    poll(1)
                    with suppress(BufferError):
                        produce(topic, source_value(time_ms, ip), ip, on_delivery=failed)
                        break
                else:
                    raise SourceFailed(
                        f"{bootstrap_servers} acknowledged no record of {topic} for {LONGEST_WAIT} s: is it running?"
                    ) from None
            if not sent % 10_000:
                poll(0)
                progress(sent)
                if len(report.errors) >= 1000:
                    break
    finally:
        unsent = producer.flush(LONGEST_WAIT)
    report.sent, report.last_time_ms = sent, last
    report.acknowledged = sent - len(report.errors) - unsent
    progress(sent)
    if sent and not report.acknowledged:
        raise SourceFailed(
            f"none of {sent:,} records reached {topic} at {bootstrap_servers}: "
            f"{report.errors[0] if report.errors else f'no broker answered within {LONGEST_WAIT} s'}"
        )
    return report


def close_windows(last_time_ms: int, bootstrap_servers: str, topic: str = SOURCE_TOPIC) -> int:
    """Send each partition one closing record, whose time makes every window up to `last_time_ms` final.

    Call it after the accesses are acknowledged; none of them may be later than LATEST_ACCESS_MS. Returns the closing
    record's time in epoch millis.
    """
    time_ms = last_time_ms + CLOSING_DELAY_MS
    producer = source_producer(bootstrap_servers)
    for partition in end_offsets(bootstrap_servers, topic):
        producer.produce(topic, source_value(time_ms, CLOSING_IP), CLOSING_IP, partition)
    if producer.flush(60):
        raise SourceFailed(f"the closing records did not reach {topic} at {bootstrap_servers} within 60 s")
    return time_ms


def source_producer(bootstrap_servers: str, **settings: str | int) -> Producer:
    """Return an idempotent producer that, unless `settings` say otherwise, calls back for failed records only."""
    return Producer(
        {
            "bootstrap.servers": bootstrap_servers,
            "enable.idempotence": True,
            "delivery.report.only.error": True,
            # With sparse connections, it sometimes did not reconnect to a single broker that had shut down.
            "enable.sparse.connections": False,
            "log_level": 0,
            **settings,
        }
    )


TICK = 0.02  # seconds
PATIENCE_MS = 600_000  # a record waits that long for a broker to come back


class LiveTraffic:
    """Sends `rate` accesses a second as source records, from now until `stop`.

    `sent` and `acknowledged` count per access (event time, IP): what was sent and not acknowledged is indeterminate.
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
        """Send no more, wait for acknowledgements (`timeout` seconds), send closing records. Raises SourceFailed."""
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
                    if (access := next(self._accesses, None)) is None:
                        raise ValueError("there are no more accesses to send")
                    self._send(*access)
                    due -= 1
                self._producer.poll(0)
        except Exception as error:
            self._error = error

    def _send(self, time_ms: int, ip: str) -> None:
        access = (window_start(time_ms, self.window_ms), ip)

        def delivered(error: KafkaError | None, _: Message) -> None:
            if error is None:
                self.acknowledged[access] += 1

        while not self._stopping.is_set():
            try:
                self._producer.produce(self._topic, source_value(time_ms, ip), ip, on_delivery=delivered)
            except BufferError:  # the queue is full, because the broker is away: wait
                self._producer.poll(0.1)
                continue
            self.sent[access] += 1
            self.records += 1
            self.last_time_ms = max(self.last_time_ms, time_ms)
            return
