"""A whole access log, from file to audited counts, through a real broker and a real Spark."""

from __future__ import annotations

import tempfile
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, tzinfo
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

from kafka.errors import KafkaError
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming import StreamingQuery

from exactly_once_kafka.sink import ExactlyOnceKafkaSink
from labs.equipment.topics import KafkaUnreachable, TopicRefused, admin, create_topic, remove_topics
from labs.evidence.auditor.audit import Audit, audit
from labs.evidence.auditor.expected import Expected
from labs.evidence.auditor.observed import utc
from labs.evidence.readers.results import read_results
from labs.pipeline.log.access_log import Access, read_access_log
from labs.pipeline.log.log_report import LogReport
from labs.pipeline.log.replay import Replay, close_windows, in_event_time_order, replay
from labs.pipeline.query import ip_count
from labs.pipeline.records import SINK_TOPIC, SOURCE_TOPIC, WINDOW_MS

RECORDS_PER_BATCH = 2_000_000
READING, COUNTING = "reading the log into Kafka", "counting in Spark"
READING_BACK, AUDITING = "reading the results back", "auditing them"

# The times that a server can have logged: there was no web before, and a clock is at most a day ahead.
EARLIEST_MS = 631_152_000_000  # 1990-01-01T00:00:00Z
AHEAD_MS = 86_400_000

Progress = Callable[[str, int, int | None], object]  # (what is done, records done, of how many if known)


class Topics(NamedTuple):
    """The topic of the accesses, and that of the results."""

    source: str
    sink: str


@dataclass(frozen=True)
class OpenLog:
    """A log that has been read up to its first access, if it has one, before Kafka and Spark start."""

    report: LogReport
    accesses: Iterator[Access]

    @property
    def understood(self) -> bool:
        """Whether the log has an access."""
        return bool(self.report.good)


def open_log(paths: Iterable[str | Path], zone: tzinfo = UTC) -> OpenLog:
    """Read up to the first access. The access is kept, since a pipe can be read only once. `-` is standard input."""
    report = LogReport()
    accesses = read_access_log(paths, report, zone)
    first = next(accesses, None)
    return OpenLog(report, chain([] if first is None else [first], accesses))


@dataclass(frozen=True)
class CountedLog:
    """The log as it was read, its counts per (window start in epoch millis, IP), and the audit.

    `seconds` is what each part of the work took, in its order.
    """

    log: LogReport
    replay: Replay
    counts: Counter[tuple[int, str]]
    late: int
    audit: Audit
    topics: Topics
    seconds: dict[str, float] = field(default_factory=dict)

    @property
    def windows(self) -> int:
        return len({window for window, _ in self.counts})

    @property
    def span(self) -> tuple[int, int] | None:
        """The start of the first window and the end of the last in epoch millis, or None if there is no window."""
        windows = [window for window, _ in self.counts]
        return (min(windows), max(windows) + WINDOW_MS) if windows else None

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

    def top(self, n: int = 10) -> list[tuple[str, int]]:
        """Return the n IPs with the most requests, and how many."""
        totals: Counter[str] = Counter()
        for (_, ip), count in self.counts.items():
            totals[ip] += count
        return sorted(totals.items(), key=lambda item: (-item[1], item[0]))[:n]

    def as_dict(self) -> dict[str, Any]:
        """Return the object that `count --json` prints."""
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
            "counts": [
                {"window_start": utc(window), "ip": ip, "count": count}
                for (window, ip), count in sorted(self.counts.items())
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
    return CountedLog(log.report, Replay(), Counter(), 0, audit({}, []), Topics("", ""))


def count_log(
    log: OpenLog,
    spark: SparkSession,
    bootstrap_servers: str,
    topics: Topics,
    progress: Progress = lambda task, done, total: None,
    *,
    as_is: bool = False,
) -> CountedLog:
    """Count the requests per IP of an access log, through topics that are empty, and audit it.

    The log is sorted by event time first, so that no line is late. `as_is` keeps its order; lines that the watermark
    then drops are reported as late.
    """
    expected = Expected()
    accesses = expected.watch(log.accesses)
    seconds: dict[str, float] = {}
    with ThreadPoolExecutor(2) as beside, tempfile.TemporaryDirectory(prefix="labs-checkpoint-") as checkpoint:
        beside.submit(_wake_coordinators, bootstrap_servers, topics.sink)
        planned = beside.submit(_counts, spark, bootstrap_servers, topics.source)
        with _timed(seconds, READING):
            sent = replay(
                accesses if as_is else in_event_time_order(accesses),
                bootstrap_servers,
                topics.source,
                progress=lambda done: progress(READING, done, None),
            )
            progress(READING, sent.sent, sent.sent)
            if not sent.sent:
                return nothing_counted(log)
            close_windows(sent.last_time_ms, bootstrap_servers, topics.source)
        with _timed(seconds, COUNTING):
            # A log is one or two batches: they should not wait until Python has started on executors.
            sink = ExactlyOnceKafkaSink(topics.sink, topics.sink, bootstrap_servers=bootstrap_servers, writers="driver")
            query = ip_count.start_query(planned.result(), sink, checkpoint)
            _follow(query, sent.sent, progress)
            dropped = _late(bootstrap_servers, topics.source, checkpoint) if as_is else Counter()
    progress(READING_BACK, 0, None)
    with _timed(seconds, READING_BACK):
        results = read_results(bootstrap_servers, topics.sink)
    progress(READING_BACK, len(results), len(results))
    with _timed(seconds, AUDITING):
        counts = Counter({(result.window_start, result.ip): result.count for result in results})
        verdict = audit(expected.counts, results, late_dropped=dropped)
    return CountedLog(log.report, sent, counts, dropped.total(), verdict, topics, seconds)


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
    """Return the streaming aggregation. Spark needs a second for its first plan, while the log is being read."""
    records = ip_count.read_source(
        spark, bootstrap_servers, source, records_per_batch=RECORDS_PER_BATCH, minPartitions="2"
    )
    return ip_count.count_ips(records)


def _late(bootstrap_servers: str, source_topic: str, checkpoint: str) -> Counter[tuple[int, str]]:
    """Return how many late records the query must have dropped, per (window start in epoch millis, IP)."""
    # Imported here, since it imports pandas, which takes a second.
    from labs.evidence.checkpoint.checkpoint import read_checkpoint
    from labs.evidence.checkpoint.planned_results import planned_results, read_source_records

    return planned_results(read_checkpoint(checkpoint), read_source_records(bootstrap_servers, source_topic)).dropped


def _follow(query: StreamingQuery, total: int, progress: Progress) -> None:
    """Report how many records the query has counted until it ends. Stops the query on an interrupt."""
    try:
        while not query.awaitTermination(0.2):  # type: ignore[arg-type]  # it takes parts of a second too
            done = sum(batch.numInputRows for batch in query.recentProgress)
            progress(COUNTING, min(done, total), total)
        progress(COUNTING, total, total)
    finally:
        query.stop()
