"""Computes from a query's checkpoint, without Spark, what the query must have done with the records of its source.

Batch k covers the offsets from the end of batch k - 1 to its own end. With W(k) as the watermark in offsets/k, it

1. drops a record as late if its window's end <= W(k - 1): a final window stays open for one more batch;
2. counts the others;
3. emits each window that was counted and is not yet emitted, if the window's end <= W(k).

So the offset log alone decides what a batch emits, and a replay of the batch emits the same. Spark 4.2 does so
(IncrementalExecution, WatermarkPropagator, StateStoreSaveExec), and the tests compare this module with Spark.

Guarantee: exact per (window, IP), for the IP count in append mode, in the batches that the checkpoint still has.
Limitations: the topic must still hold the records.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from labs.evidence.checkpoint.checkpoint import Batch, Checkpoint, CheckpointError
from labs.evidence.readers.results import position, read_to_end
from labs.pipeline.records import CLOSING_IP, SOURCE_TOPIC, WINDOW_MS, parse_source_value, window_start

Key = tuple[int, str]  # (window start in epoch millis, IP)
SourceRecord = tuple[int, int, int | None, str | None]  # partition, offset, event time, IP; None if malformed


@dataclass
class PlannedResults:
    """What became of the records, counted per (window start in epoch millis, IP).

    `emitted` maps each batch to its results. If Spark has deleted older batches, the first batch that is left is not
    in it. `dropped` counts the late records of the same batches. `pending` are counts that are not emitted yet.
    `malformed` records belong to no window, `unread` records to no batch.
    """

    in_flight: int | None
    emitted: dict[int, dict[Key, int]]
    dropped: Counter[Key] = field(default_factory=Counter)
    pending: dict[Key, int] = field(default_factory=dict)
    malformed: int = 0
    unread: int = 0

    @property
    def repeated(self) -> dict[Key, int]:
        """The results of the batch in flight: a restart publishes them again if they were published already."""
        return {} if self.in_flight is None else self.emitted[self.in_flight]


def planned_results(checkpoint: Checkpoint, records: Iterable[SourceRecord]) -> PlannedResults:
    """Work out which results each batch emits, and which of the source's `records` are dropped as late.

    The records come in any order, as from `read_source_records`; only counts are kept in memory.
    Raises CheckpointError if a batch in the middle cannot be read, or the source is not one Kafka topic.
    """
    batches = _legible(checkpoint)
    forgotten = bool(batches) and batches[0].batch_id > 0
    watermarks = [batch.watermark_ms or 0 for batch in batches]
    starts, ends = _ranges(batches)
    in_flight = checkpoint.in_flight.batch_id if checkpoint.in_flight else None
    result = PlannedResults(in_flight, {batch.batch_id: {} for batch in batches[forgotten:]})

    counted: Counter[Key] = Counter()
    for partition, offset, time_ms, ip in records:
        k = bisect_right(ends.get(partition, ()), offset)
        if k >= len(ends.get(partition, ())) or (offset < starts.get(partition, 0) and not forgotten):
            result.unread += 1
        elif time_ms is None or ip is None:
            result.malformed += 1
        elif ip != CLOSING_IP:
            window = window_start(time_ms)
            if k and window + WINDOW_MS <= watermarks[k - 1]:
                result.dropped[window, ip] += 1
            else:
                counted[window, ip] += 1
    for key, count in counted.items():
        # Batch k is never before the batch that counted the record: step 1 would have dropped the record there.
        k = bisect_left(watermarks, key[0] + WINDOW_MS)
        if k == len(watermarks):
            result.pending[key] = count
        elif k or not forgotten:  # windows of the first remaining batch may lack counts of deleted ones
            result.emitted[batches[k].batch_id][key] = count
    return result


def read_source_records(
    bootstrap_servers: str, topic: str = SOURCE_TOPIC, timeout: float = 60
) -> Iterator[SourceRecord]:
    """Yield every record of the source topic up to its present end, parsed as the IP count parses it.

    Like the query's source, it reads with read_committed. Raises KafkaException if the topic cannot be read,
    TimeoutError if its end is not reached within `timeout` seconds without progress.
    """
    for message in read_to_end(bootstrap_servers, topic, "read_committed", timeout):
        yield *position(message), *parse_source_value(message.value())


def _legible(checkpoint: Checkpoint) -> tuple[Batch, ...]:
    unplanned = [batch.batch_id for batch in checkpoint.batches if not batch.planned]
    if unplanned:
        why = "; ".join(checkpoint.damage)
        raise CheckpointError(f"{checkpoint.path}: the offsets of batch {unplanned[0]} are not known: {why}")
    topics = {topic for batch in checkpoint.batches for topic, _ in batch.end}
    if checkpoint.batches and len(topics) != 1:
        found = ", ".join(sorted(topics)) or "none"
        raise CheckpointError(f"{checkpoint.path}: expected one Kafka topic as the source, found {found}")
    return checkpoint.batches


def _ranges(batches: tuple[Batch, ...]) -> tuple[dict[int, int], dict[int, list[int]]]:
    """Return per partition its first offset, and the end offset of each batch (0 before the partition existed)."""
    partitions = {at for batch in batches for at in batch.end}
    starts = {partition: offset for batch in batches[:1] for (_, partition), offset in batch.start.items()}
    return starts, {at[1]: [batch.end.get(at, 0) for batch in batches] for at in partitions}
