"""Chooses the task that writes a row: all rows of a Kafka partition go to one task, which numbers the records.

A row's Kafka partition is the one that its column `partition` names, or the one that every Java client would choose for
its key: `(murmur2(key) & 0x7fffffff) % partitions`. Rows with neither are spread: those of one task and one micro-batch
share a partition.

Limitations: the hash takes one round, of about 10 µs of a processor, for each 4 bytes of the longest key, even if only
one key is that long. Source: org.apache.kafka.common.utils.Utils.murmur2.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow
import pyarrow.compute
from numpy.typing import NDArray
from pyspark.sql import DataFrame

from exactly_once_kafka.kafka_client.record_batch import LARGEST, MOST_RECORDS, booleans, int32s, integers, nulls
from exactly_once_kafka.kafka_rows import topic_of_row

UNSET = -1  # for a partition: neither the row nor its key says which
SEED, M = np.uint32(0x9747B28C), np.uint32(0x5BD1E995)
TAIL_MASK = np.array([0, 0xFF, 0xFFFF, 0xFFFFFF], np.uint32)  # by the number of bytes that are left


def partitions_of_keys(keys: pyarrow.Array, partitions: int) -> NDArray[np.int32]:
    """Return the partition of each key, binary or string, in a topic with `partitions` of them; UNSET for a null.

    The caller chooses a partition for null keys.
    """
    chosen = ((murmur2(keys) & np.uint32(0x7FFFFFFF)) % np.uint32(partitions)).astype(np.int32)
    chosen[nulls(keys)] = UNSET
    return chosen


def murmur2(keys: pyarrow.Array) -> NDArray[np.uint32]:
    """Return the 32-bit MurmurHash2 of each key, binary or string, with Kafka's seed; an arbitrary hash for a null."""
    starts, data = _starts_and_data(keys.cast(pyarrow.large_binary()))
    starts, lengths = starts[:-1], np.diff(starts)
    word_at = np.ndarray(len(data) - 3, "<u4", data, strides=(1,))  # a word starts at every byte
    words = lengths >> 2
    hashes = SEED ^ lengths.astype(np.uint32)
    live = np.flatnonzero(words)  # the keys that have words left
    for word in range(words.max(initial=0)):
        live = live[words[live] > word]
        hashes[live] = hashes[live] * M ^ _mixed(word_at[starts[live] + 4 * word])
    left = lengths & 3
    tail = word_at[starts + 4 * words] & TAIL_MASK[left]
    hashes = np.where(left, (hashes ^ tail) * M, hashes)
    hashes = (hashes ^ hashes >> np.uint32(13)) * M
    return hashes ^ hashes >> np.uint32(15)


def _mixed(words: NDArray[np.uint32]) -> NDArray[np.uint32]:
    words = words * M
    return (words ^ words >> np.uint32(24)) * M


def _starts_and_data(keys: pyarrow.Array) -> tuple[NDArray[np.int64], NDArray[np.uint8]]:
    """Return where each key starts in the bytes of all keys, and where the last one ends; and these bytes.

    The bytes are padded, so that 4 bytes can be read at each of these places.
    """
    if not len(keys):
        return np.zeros(1, np.int64), np.zeros(4, np.uint8)
    _, offsets, data = keys.buffers()
    starts = np.frombuffer(offsets, np.int64)[keys.offset : keys.offset + len(keys) + 1]
    used = np.frombuffer(data or b"", np.uint8)[starts[0] : starts[-1]]
    return starts - starts[0], np.concatenate((used, np.zeros(4, np.uint8)))


# Without a shuffle, fewer tasks may compute the rows. That may take up to this many times longer, since a shuffle takes
# as long as writing the rows.
SLOWER = 2
WRITER = "exactly_once_writer"  # column: number of the task that is to write the row

PartitionsOf = Callable[[str], int]
ArrowBatches = Iterator[pyarrow.RecordBatch]


class PartitionRows(NamedTuple):
    """Rows for one Kafka partition."""

    topic: str
    partition: int
    rows: pyarrow.RecordBatch


def repartition_for_kafka(
    rows: DataFrame, topic: str | None, partitions: int, writers: int, assign: Callable[[ArrowBatches], ArrowBatches]
) -> DataFrame:
    """Return the rows so that all rows of a Kafka partition are in one partition of Spark's.

    `partitions` is how many the topic has; if the rows name their topics, it is an upper bound on the number of tasks.
    If the rows must be shuffled, they go to `writers` tasks, and `assign`, which calls `with_writers`, runs in the
    tasks before the shuffle. Without a shuffle, the tasks that write the rows also compute them. So rows are also
    shuffled if these tasks are far fewer than can run at once.
    """
    anywhere = topic and not {"key", "partition"} & set(rows.columns)
    if anywhere or writers == 1:
        tasks = partitions if anywhere else 1
        if _at_once(rows) <= SLOWER * tasks:
            return rows.coalesce(tasks)
    fields = [field for field in rows.schema.fields if field.name != "partition"]
    columns = ", ".join(f"`{field.name}` {field.dataType.simpleString()}" for field in fields)
    assigned = rows.mapInArrow(assign, f"{columns}, `partition` int, `{WRITER}` int")
    by_writer = getattr(assigned, "repartitionById", assigned.repartition)  # Spark 4.0 can only hash the column
    handed: DataFrame = by_writer(writers, WRITER).drop(WRITER)
    return handed


def _at_once(rows: DataFrame) -> int:
    """Return how many tasks can compute the rows of a micro-batch at once, or 1 if that is not known."""
    leaves, partitions = rows._jdf.queryExecution().analyzed().collectLeaves(), 1
    for leaf in (leaves.apply(n) for n in range(leaves.size())):
        if leaf.getClass().getSimpleName() == "LogicalRDD":  # what Spark hands to foreachBatch
            partitions = max(partitions, leaf.rdd().getNumPartitions())
    return min(partitions, rows.sparkSession.sparkContext.defaultParallelism)


def gathered(arrow_batches: ArrowBatches) -> ArrowBatches:
    """Join small batches until they have MOST_RECORDS rows or LARGEST bytes.

    A small batch takes as long to write as a large one.
    """
    waiting, count, size = list[pyarrow.RecordBatch](), 0, 0
    for arrow_batch in arrow_batches:
        waiting.append(arrow_batch)
        count, size = count + arrow_batch.num_rows, size + arrow_batch.nbytes
        if count >= MOST_RECORDS or size >= LARGEST:
            yield from _joined(waiting)
            waiting, count, size = [], 0, 0
    yield from _joined(waiting)


def _joined(arrow_batches: list[pyarrow.RecordBatch]) -> ArrowBatches:
    if arrow_batches:
        yield from pyarrow.Table.from_batches(arrow_batches).combine_chunks().to_batches()


def with_writers(
    arrow_batches: ArrowBatches, topic: str | None, partitions_of: PartitionsOf, spread: int, writers: int
) -> ArrowBatches:
    """Add to each row its Kafka partition and the number of the task that writes it."""
    for arrow_batch in arrow_batches:
        for placed in split(arrow_batch, topic, partitions_of, spread):
            writer = (zlib.crc32(placed.topic.encode()) + placed.partition) % writers
            rows = placed.rows
            if "partition" in rows.schema.names:
                rows = rows.drop_columns("partition")
            for name, number in (("partition", placed.partition), (WRITER, writer)):
                rows = rows.append_column(name, int32s(np.full(rows.num_rows, number, np.int32)))
            yield rows


def split(
    arrow_batch: pyarrow.RecordBatch, topic: str | None, partitions_of: PartitionsOf, spread: int
) -> Iterator[PartitionRows]:
    """Yield the rows of each Kafka partition, in their order.

    Rows without key and partition go to partition `spread`, modulo the number of the topic's partitions.
    Raises ValueError for a row without a topic.
    """
    for name, rows in _by_topic(arrow_batch, topic):
        partitions = _partitions(rows, partitions_of(name), spread)
        present = np.unique(partitions)
        for number in present:
            chosen = rows if len(present) == 1 else rows.filter(booleans(partitions == number))
            yield PartitionRows(name, int(number), chosen)


def _by_topic(arrow_batch: pyarrow.RecordBatch, topic: str | None) -> Iterator[tuple[str, pyarrow.RecordBatch]]:
    if topic:
        yield topic, arrow_batch
        return
    topics = arrow_batch.column("topic")
    for name in pyarrow.compute.unique(topics):
        yield topic_of_row(name.as_py()), arrow_batch.filter(pyarrow.compute.equal(topics, name))


def _partitions(rows: pyarrow.RecordBatch, count: int, spread: int) -> npt.NDArray[np.int32]:
    chosen = np.full(rows.num_rows, UNSET, np.int32)
    if "partition" in rows.schema.names:
        chosen = integers(rows.column("partition"), of_null=UNSET)
    if "key" in rows.schema.names and count > 1 and (chosen == UNSET).any():
        chosen = np.where(chosen == UNSET, partitions_of_keys(rows.column("key"), count), chosen)
    return np.where(chosen == UNSET, spread % count, chosen)
