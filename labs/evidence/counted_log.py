"""A whole access log, from file to audited counts, through a real broker and a real Spark."""

from __future__ import annotations

import tempfile
import uuid
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, tzinfo
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql.streaming import StreamingQuery
from rich.progress import Progress

from labs.equipment.topics import create_topic
from labs.evidence.audit import Audit, audit
from labs.evidence.checkpoint import read_checkpoint
from labs.evidence.expected import Expected
from labs.evidence.prediction import predict, read_source_records
from labs.evidence.reader import read_results
from labs.pipeline import ip_count
from labs.pipeline.access_log import LogReport, read_access_log
from labs.pipeline.event_time_order import in_event_time_order
from labs.pipeline.exactly_once import ExactlyOnceKafkaSink
from labs.pipeline.source import Replay, close_windows, replay

RECORDS_PER_BATCH = 2_000_000


@dataclass(frozen=True)
class CountedLog:
    """What was read, what was counted per (window start in epoch millis, client), and what the audit says."""

    log: LogReport
    replay: Replay
    counts: Counter[tuple[int, str]]
    late: int
    audit: Audit
    source_topic: str
    sink_topic: str

    @property
    def windows(self) -> int:
        return len({window for window, _ in self.counts})

    def top(self, n: int = 10) -> list[tuple[str, int]]:
        """Return the n clients with the most requests, and how many."""
        totals: Counter[str] = Counter()
        for (_, client), count in self.counts.items():
            totals[client] += count
        return sorted(totals.items(), key=lambda item: (-item[1], item[0]))[:n]

    def as_dict(self) -> dict[str, Any]:
        """Return the object that `count --json` prints."""
        return {
            "lines": self.log.lines,
            "good": self.log.good,
            "bad": self.log.bad_total,
            "bad_by_reason": dict(self.log.bad),
            "late": self.late,
            "sent": self.replay.sent,
            "acknowledged": self.replay.acknowledged,
            "windows": self.windows,
            "counts": [
                {"window_start": iso(window), "ip": client, "count": count}
                for (window, client), count in sorted(self.counts.items())
            ],
            "audit": self.audit.as_dict(),
        }


def count_log(
    paths: Iterable[str | Path],
    spark: SparkSession,
    bootstrap_servers: str,
    progress: Progress,
    *,
    as_is: bool = False,
    zone: tzinfo = UTC,
) -> CountedLog:
    """Count the requests per IP of an access log and audit the result. `-` is standard input.

    The log is put in event-time order first, so that no line is late; `as_is` keeps its own order, and what
    the watermark then drops is reported as late. Both topics are new, with one partition each: Spark reads
    partitions at their own pace, so that two could be out of step by more than the allowed lateness.
    """
    run = uuid.uuid4().hex[:8]
    source_topic = create_topic(bootstrap_servers, f"ip_count_source_{run}", partitions=1)
    sink_topic = create_topic(bootstrap_servers, f"ip_count_sink_{run}", partitions=1)
    log, expected = LogReport(), Expected()
    accesses = expected.watch(read_access_log(paths, log, zone))
    reading = progress.add_task("reading the log into Kafka", total=None)
    sent = replay(
        accesses if as_is else in_event_time_order(accesses),
        bootstrap_servers,
        source_topic,
        progress=lambda done: progress.update(reading, completed=done),
    )
    progress.update(reading, total=sent.sent, completed=sent.sent)
    if not sent.sent:
        return CountedLog(log, sent, Counter(), 0, audit({}, []), source_topic, sink_topic)
    close_windows(sent.last_time_ms, bootstrap_servers, source_topic)

    counting = progress.add_task("counting in Spark", total=sent.sent)
    with tempfile.TemporaryDirectory(prefix="labs-checkpoint-") as checkpoint:
        records = ip_count.read_source(
            spark, bootstrap_servers, source_topic, records_per_batch=RECORDS_PER_BATCH, minPartitions="2"
        )
        sink = ExactlyOnceKafkaSink(f"count-{run}", sink_topic, bootstrap_servers=bootstrap_servers)
        query = ip_count.start(ip_count.ip_count(records), sink, checkpoint)
        _follow(query, progress, counting, sent.sent)
        dropped = {}
        if as_is:
            source = read_source_records(bootstrap_servers, source_topic)
            dropped = predict(read_checkpoint(checkpoint), source).dropped
    results = read_results(bootstrap_servers, sink_topic)
    counts = Counter({(result.window_start, result.ip): result.count for result in results})
    verdict = audit(expected.counts, results, late_dropped=dropped)
    return CountedLog(log, sent, counts, sum(dropped.values()), verdict, source_topic, sink_topic)


def _follow(query: StreamingQuery, progress: Progress, task, total: int) -> None:
    """Show how many records the query has counted until it ends. Stops the query if we are interrupted."""
    try:
        while not query.awaitTermination(0.2):
            done = sum(batch.numInputRows for batch in query.recentProgress)
            progress.update(task, completed=min(done, total))
        progress.update(task, completed=total)
    finally:
        query.stop()


def iso(time_ms: int) -> str:
    """Write epoch millis as ISO 8601 in UTC, to the second."""
    return datetime.fromtimestamp(time_ms / 1000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
