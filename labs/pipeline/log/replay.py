"""Sends accesses into the source topic, one record each, with the IP as its key.

`replay` sends all of them as fast as it can.

`in_event_time_order` sorts with bounded memory, by a stable external merge. Sorted runs go to temporary files and are
merged. Input that fits in memory never touches the disk. The files have no name (on POSIX), so they are gone when the
iterator ends, is closed, or its process is killed.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from heapq import merge
from itertools import chain, islice
from operator import itemgetter
from typing import IO, Any

from confluent_kafka import KafkaError, Message, Producer

from labs.equipment.topics import end_offsets
from labs.pipeline.log.access_log import Access
from labs.pipeline.records import CLOSING_DELAY_MS, CLOSING_IP, SOURCE_TOPIC, source_value

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


def source_producer(bootstrap_servers: str, **settings: Any) -> Producer:
    """Return an idempotent producer that, unless `settings` say otherwise, calls back for failed records only."""
    return Producer(
        {
            "bootstrap.servers": bootstrap_servers,
            "enable.idempotence": True,
            "delivery.report.only.error": True,
            "log_level": 0,
            **settings,
        }
    )
