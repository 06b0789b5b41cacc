"""Commits the query's progress to a consumer group of Kafka, so that any lag tool can show it.

After each completed batch it commits the batch's end offsets in the source under a group name, as Kafka's own consumers
do: `kafka-consumer-groups --describe --group GROUP` then shows a lag. Spark restarts from its checkpoint and never
reads these offsets, so a report that fails, comes late or is overwritten changes no result.

    spark.streams.addListener(OffsetReporter("ip-count", bootstrap_servers="127.0.0.1:9092"))

Limitations: Kafka sources of this session's queries; a group that has consumers of its own cannot be used.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable

from kafka import TopicPartition
from kafka.errors import NoError
from kafka.structs import OffsetAndMetadata
from pyspark.sql.streaming import StreamingQueryListener
from pyspark.sql.streaming.listener import (
    QueryIdleEvent,
    QueryProgressEvent,
    QueryStartedEvent,
    QueryTerminatedEvent,
    SourceProgress,
)

from labs.equipment.topics import admin
from labs.equipment.waiting import eventually

log = logging.getLogger(__name__)


class ReportRefused(RuntimeError):
    """Kafka did not accept the offsets."""


class OffsetReporter(StreamingQueryListener):
    """Commits the end offsets of each completed batch to the group.

    With several queries in the session, give each a reporter of its own and name the query (`queryName`).
    `reports` and `failures` are counters. `tell` is called with a sentence when reports begin to fail, not for each.
    """

    def __init__(
        self,
        group: str,
        *,
        bootstrap_servers: str,
        query_name: str | None = None,
        tell: Callable[[str], object] = log.warning,
    ):
        super().__init__()
        self.group, self.reports, self.failures = group, 0, 0
        self._bootstrap_servers, self._query_name, self._tell = bootstrap_servers, query_name, tell
        self._failing = False

    def wait_for(self, reports: int, timeout: float = 60) -> None:
        """Wait until there were that many reports: a report comes a moment after its batch. Raises TimeoutError."""
        eventually(lambda: self.reports >= reports, timeout)

    def onQueryProgress(self, event: QueryProgressEvent) -> None:
        # Spark posts this once the batch is in its commit log: the batch is complete, whatever happens next.
        progress = event.progress
        if self._query_name not in (None, progress.name):
            return
        try:
            self._report({at: end for source in progress.sources for at, end in ends_of_batch(source).items()})
        except Exception as error:
            # A report that fails must not fail the query.
            self.failures += 1
            if not self._failing:
                self._tell(
                    f"the lag of group {self.group!r} is out of date from batch {progress.batchId} on; the query is "
                    f"not affected. {type(error).__name__}: {error}"
                )
            self._failing = True

    def _report(self, offsets: dict[TopicPartition, int]) -> None:
        if not offsets:
            return
        with admin(self._bootstrap_servers) as kafka:
            answers = kafka.alter_group_offsets(
                self.group, {at: OffsetAndMetadata(end, "", None) for at, end in offsets.items()}
            )
        refused = {
            f"{at.topic}-{at.partition}: {error.__name__}" for at, error in answers.items() if error is not NoError
        }
        if refused:
            raise ReportRefused(f"{', '.join(sorted(refused))} (has the group consumers of its own?)")
        self.reports += 1
        self._failing = False

    def onQueryStarted(self, event: QueryStartedEvent) -> None:
        """Nothing to report yet."""

    def onQueryIdle(self, event: QueryIdleEvent) -> None:
        """Nothing new."""

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:
        """The last completed batch has been reported, and an incomplete one must not be."""


def ends_of_batch(source: SourceProgress) -> dict[TopicPartition, int]:
    """Return the end offset of a batch in each partition; nothing for a source that is not Kafka."""
    if not source.description.startswith("Kafka") or not source.endOffset:
        return {}
    return {
        TopicPartition(topic, int(partition)): offset
        for topic, partitions in json.loads(source.endOffset).items()
        for partition, offset in partitions.items()
    }
