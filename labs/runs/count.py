"""A whole access log, from file to audited counts, through a real broker and a real Spark.

The log is read and sorted while Kafka and Spark start. Then Spark counts while the log is being sent to Kafka.
"""

from __future__ import annotations

import tempfile
import threading
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from concurrent.futures import wait as wait_for
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta, tzinfo
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

from kafka.errors import KafkaError
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming import StreamingQuery

from exactly_once_kafka.sink import ExactlyOnceKafkaSink
from labs.equipment.topics import KafkaUnreachable, TopicRefused, admin, create_topic, remove_topics
from labs.evidence.auditor.audit import Audit, audit, audit_parts
from labs.evidence.auditor.expected import busiest_window, requests_per_ip, requests_per_window
from labs.evidence.auditor.observed import Key, Result, utc
from labs.evidence.readers.results import committed_results
from labs.pipeline.log.access_log import Access, read_access_log
from labs.pipeline.log.log_report import LogReport
from labs.pipeline.log.replay import Replay, close_windows, in_event_time_order, replay
from labs.pipeline.query import ip_count
from labs.pipeline.query.offset_reporter import ends_of_batch
from labs.pipeline.query.query_failure import why
from labs.pipeline.records import LARGEST_BATCH, LATENESS_MS, SINK_TOPIC, SOURCE_TOPIC, WINDOW_MS
from labs.runs.window_parts import Part, WindowParts

# A shorter wait would cut the log into more batches, and Spark would ask more often whether there are records.
BETWEEN_BATCHES = "500 milliseconds"
READING, SENDING, COUNTING = "reading the log", "sending it to Kafka", "counting in Spark"
READING_BACK, AUDITING = "reading the results back", "auditing them"

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
# The times that a server can have logged: there was no web before, and a clock is at most a day ahead.
EARLIEST_MS = 631_152_000_000  # 1990-01-01T00:00:00Z
AHEAD_MS = 86_400_000

Progress = Callable[[str, int, int | None], object]  # (what is done, records done, of how many if known)


class Topics(NamedTuple):
    """The topic of the accesses, and that of the results."""

    source: str
    sink: str


class CountFailed(RuntimeError):
    """Spark could not count the log."""


class OpenLog:
    """A log that has been read up to its first access, if it has one, before Kafka and Spark start.

    A thread starts at once, reads all of it and sorts it by event time. With `as_is` the order stays, and the log is
    read while `accesses` is iterated over. Each access is counted in `parts` as it is read.
    """

    def __init__(self, report: LogReport, accesses: Iterator[Access], as_is: bool = False):
        self.report, self.as_is, self.parts = report, as_is, WindowParts()
        first = next(accesses, None)  # it is kept, since a pipe can be read only once
        watched = self.parts.watch(chain([] if first is None else [first], accesses))
        self._in_order = watched if as_is or first is None else in_event_time_order(watched)
        self._first: Future[Access | None] = Future()
        if self._in_order is watched:
            self._read_first()
        else:  # as a daemon, because nothing can interrupt a thread that waits for a pipe
            threading.Thread(target=self._read_first, name="reads-the-log", daemon=True).start()

    def _read_first(self) -> None:
        try:
            self._first.set_result(next(self._in_order, None))
        except BaseException as error:
            self._first.set_exception(error)

    @property
    def understood(self) -> bool:
        """Whether the log has an access."""
        return bool(self.report.good)

    def is_in_order(self, timeout: float = 0) -> bool:
        """Wait so many seconds for the log to be sorted, and tell whether it is. With `as_is` return True at once."""
        return bool(wait_for([self._first], timeout).done)

    @property
    def accesses(self) -> Iterator[Access]:
        """Iterate over the accesses, once. Raises LogUnreadable, SortFailed."""
        first = self._first.result()
        return chain([] if first is None else [first], self._in_order)


def open_log(paths: Iterable[str | Path], zone: tzinfo = UTC, as_is: bool = False) -> OpenLog:
    """Read up to the first access, and sort the log in a thread unless `as_is`. `-` is standard input."""
    report = LogReport()
    return OpenLog(report, read_access_log(paths, report, zone), as_is)


@dataclass(frozen=True)
class CountedLog:
    """The log as it was read, its results, the requests per window (its start in epoch millis) and per IP, the audit.

    `seconds` is what each part of the work took, in its order.
    """

    log: LogReport
    replay: Replay
    parts: WindowParts
    per_window: Counter[int]
    per_ip: Counter[str]
    late: int
    audit: Audit
    topics: Topics
    seconds: dict[str, float] = field(default_factory=dict)

    def counts(self) -> Iterator[tuple[Key, int]]:
        """Yield the count of each window and IP."""
        for _, results in self.parts:
            yield from _counts_of(results).items()
            del results  # before the next part is read

    @property
    def windows(self) -> int:
        return len(self.per_window)

    @property
    def span(self) -> tuple[int, int] | None:
        """The start of the first window and the end of the last in epoch millis, or None if there is no window."""
        windows = self.per_window
        return (min(windows), max(windows) + WINDOW_MS) if windows else None

    @property
    def busiest(self) -> tuple[int, int] | None:
        """The start of the window with the most requests, the first of several, and how many; None without a window."""
        totals = self.per_window
        return (busiest := busiest_window(totals), totals[busiest]) if totals else None

    @property
    def doubt(self) -> str:
        """What is wrong with the times, if no server can have logged at them; else an empty text."""
        if not self.span:
            return ""
        first, last = self.span
        now = int(datetime.now(UTC).timestamp() * 1000)
        if first < EARLIEST_MS:
            wrong, why = utc(first), "seconds are taken for milliseconds, or the server's clock was not set"
        elif last > now + AHEAD_MS:
            wrong, why = utc(last), "microseconds are taken for milliseconds, or a clock is wrong"
        else:
            return ""
        return (
            f"THE TIMES CANNOT BE RIGHT: the requests are from {utc(first)} to {utc(last)}, and no server can have "
            f"logged one at {wrong}. Perhaps {why}; epoch_millis,ip expects milliseconds since 1970 (13 digits)"
        )

    @property
    def unsent(self) -> str:
        """How many requests Kafka did not acknowledge, and why; else an empty text."""
        missing = self.log.good - self.replay.acknowledged
        why = self.replay.errors[0] if self.replay.errors else "no answer in time"
        return f"{missing:,} of {self.log.good:,} requests were not acknowledged by Kafka: {why}" if missing else ""

    def as_dict(self) -> dict[str, Any]:
        """Return the object that `count --json` prints. It takes 0.5 kB of memory per window and IP."""
        busiest = self.busiest
        return {
            "lines": self.log.lines,
            "good": self.log.good,
            "bad": self.log.bad_total,
            "bad_by_reason": dict(self.log.bad),
            "files": self.log.as_dict()["files"],
            "span": [utc(moment) for moment in self.span or ()],
            "late": self.late,
            "sent": self.replay.sent,
            "acknowledged": self.replay.acknowledged,
            "windows": self.windows,
            "busiest": busiest and {"window_start": utc(busiest[0]), "requests": busiest[1]},
            "counts": [
                {"window_start": utc(window), "ip": ip, "count": count} for (window, ip), count in sorted(self.counts())
            ],
            "audit": self.audit.as_dict(),
        }


@contextmanager
def fresh_topics(bootstrap_servers: str, keep: bool = False) -> Iterator[Topics]:
    """Create the two topics of a count; at the end remove them and the marker topic, unless `keep`.

    Each has one partition: Spark could read two at paces that differ by more than the allowed lateness.
    """
    run = uuid.uuid4().hex[:8]
    topics = Topics(f"{SOURCE_TOPIC}_{run}", f"{SINK_TOPIC}_{run}")
    marker = f"{topics.sink}-marker"  # which the sink makes
    try:
        for name in topics:
            create_topic(bootstrap_servers, name, partitions=1)
        yield topics
    except BaseException:
        with suppress(KafkaUnreachable, TopicRefused):  # the first error is the one to report
            if not keep:
                remove_topics(bootstrap_servers, *topics, marker)
        raise
    if not keep:
        remove_topics(bootstrap_servers, *topics, marker)


def nothing_counted(log: OpenLog) -> CountedLog:
    """Return the count of a log that has no access."""
    return CountedLog(log.report, Replay(), log.parts, Counter(), Counter(), 0, audit({}, []), Topics("", ""))


def count_log(
    log: OpenLog,
    spark: SparkSession,
    bootstrap_servers: str,
    topics: Topics,
    progress: Progress = lambda task, done, total: None,
) -> CountedLog:
    """Count the requests per IP of an access log that has an access, through topics that are empty, and audit it.

    A sorted log has no late line, whatever batches Spark makes of it, so it is counted while it is being sent. In a log
    that is not sorted (`as_is`), some lines are late: the watermark drops them, and they are reported. Which lines are
    late depends on where the batches end. So such a log is sent completely before Spark starts: then the batches of the
    same log are always the same. Raises CountFailed, SourceFailed, LogUnreadable, SortFailed.
    """
    seconds: dict[str, float] = {}
    with ThreadPoolExecutor(1) as beside, tempfile.TemporaryDirectory(prefix="labs-checkpoint-") as checkpoint:
        beside.submit(_wake_coordinators, bootstrap_servers, topics.sink)
        # The log has few batches: they should not wait until Python has started on executors.
        sink = ExactlyOnceKafkaSink(topics.sink, topics.sink, bootstrap_servers=bootstrap_servers, writers="driver")
        start = partial(
            ip_count.start_query,
            _counts(spark, bootstrap_servers, topics.source),
            sink,
            checkpoint,
            processingTime=BETWEEN_BATCHES,
        )
        query = None if log.as_is else start()
        try:
            with _timed(seconds, READING):
                while not log.is_in_order(0.2):
                    progress(READING, log.report.lines, None)
                    _check(query)
                progress(READING, log.report.lines, None if log.as_is else log.report.lines)
            with _timed(seconds, SENDING):
                sent = _send(log, bootstrap_servers, topics.source, query, progress)
                closed = close_windows(sent.last_time_ms, bootstrap_servers, topics.source)
            with _timed(seconds, COUNTING):
                query = query or start()
                _follow(query, sent.sent, closed - LATENESS_MS, progress)
        finally:
            if query:
                query.stop()
        dropped = _late(bootstrap_servers, topics.source, checkpoint) if log.as_is else Counter()
    progress(READING_BACK, 0, None)
    with _timed(seconds, READING_BACK):
        decided, results = committed_results(bootstrap_servers, topics.sink)
        number = 0
        for number in log.parts.add(results):
            if not number % 10_000:
                progress(READING_BACK, number, None)
    progress(READING_BACK, number, number)
    per_window, per_ip = Counter[int](), Counter[str]()
    with _timed(seconds, AUDITING):
        parts = _added_up(log.parts, per_window, per_ip, progress)
        unsure = log.report.good - sent.acknowledged
        verdict = audit_parts(parts, late_dropped=dropped, indeterminate=unsure, sentinels=decided)
    return CountedLog(log.report, sent, log.parts, per_window, per_ip, dropped.total(), verdict, topics, seconds)


def _counts_of(results: Iterable[Result]) -> dict[Key, int]:
    """Return the count of each window and IP; the last one, if there are several."""
    return {(result.window_start, result.ip): result.count for result in results}


def _added_up(parts: WindowParts, per_window: Counter[int], per_ip: Counter[str], progress: Progress) -> Iterator[Part]:
    """Yield the parts, and add up the requests of each."""
    done = 0
    for expected, results in parts:
        counts = _counts_of(results)
        per_window.update(requests_per_window(counts))
        per_ip.update(requests_per_ip(counts))
        del counts
        yield expected, results
        done += len(results)
        progress(AUDITING, done, None)
        del expected, results  # before the next part is read
    progress(AUDITING, done, done)


@contextmanager
def _timed(seconds: dict[str, float], what: str) -> Iterator[None]:
    began = time.monotonic()
    yield
    seconds[what] = time.monotonic() - began


def _wake_coordinators(bootstrap_servers: str, name: str) -> None:
    """Make a new Kafka create its coordinators' topics, or the sink would wait a second for them."""
    with suppress(KafkaError, KafkaUnreachable), admin(bootstrap_servers) as client:  # the sink reports the error later
        client.describe_groups([name])
        client.describe_transactions([name])


def _counts(spark: SparkSession, bootstrap_servers: str, source: str) -> DataFrame:
    """Return the streaming aggregation. This takes a second, the first time, in which the log is being read already."""
    records = ip_count.read_source(spark, bootstrap_servers, source, records_per_batch=LARGEST_BATCH, minPartitions="2")
    return ip_count.count_ips(records)


def _late(bootstrap_servers: str, source_topic: str, checkpoint: str) -> Counter[tuple[int, str]]:
    """Return how many late records the query must have dropped, per (window start in epoch millis, IP)."""
    # Imported here, since it imports pandas, which takes a second.
    from labs.evidence.checkpoint.checkpoint import read_checkpoint
    from labs.evidence.checkpoint.planned_results import planned_results, read_source_records

    return planned_results(read_checkpoint(checkpoint), read_source_records(bootstrap_servers, source_topic)).dropped


def _send(log: OpenLog, servers: str, topic: str, query: StreamingQuery | None, progress: Progress) -> Replay:
    """Send the log, and report how much of it was sent and counted.

    Raises CountFailed if the query has failed; this is checked every 100,000 records.
    """
    total = None if log.as_is else log.report.good

    def report(done: int) -> None:
        progress(SENDING, done, total)
        if query and not done % 100_000:
            _check(query)
            progress(COUNTING, _counted(query), total)

    sent = replay(log.accesses, servers, topic, progress=report)
    progress(SENDING, sent.sent, sent.sent)
    return sent


def _follow(query: StreamingQuery, total: int, final_ms: int, progress: Progress) -> None:
    """Report how many records were counted, until every window up to `final_ms` is published. Raises CountFailed.

    A batch publishes the windows whose end is at or before its watermark.
    """
    while _watermark_ms(query) < final_ms:
        with suppress(StreamingQueryException):  # _check reports it
            query.awaitTermination(0.2)  # type: ignore[arg-type]  # it takes parts of a second too
        _check(query)
        progress(COUNTING, min(_counted(query), total), total)
    progress(COUNTING, total, total)


def _check(query: StreamingQuery | None) -> None:
    """Raise CountFailed if the query has ended."""
    if query and not query.isActive:
        error = query.exception()
        raise CountFailed(f"the count has failed: {why(error) if error else 'its query was stopped'}") from error


def _counted(query: StreamingQuery) -> int:
    """Return how many records the query has counted, the closing one included."""
    batch = query.lastProgress
    return sum(sum(ends_of_batch(source).values()) for source in batch.sources) if batch else 0


def _watermark_ms(query: StreamingQuery) -> int:
    """Return the watermark of the last batch that the query has completed, in epoch millis; 0 if there is none."""
    batch = query.lastProgress
    if not batch or "watermark" not in batch.eventTime:
        return 0
    return (datetime.fromisoformat(batch.eventTime["watermark"]) - EPOCH) // timedelta(milliseconds=1)
