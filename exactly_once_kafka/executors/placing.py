"""Which task writes which row: all rows of a Kafka partition go to one task, since its records are numbered there.

A row's Kafka partition is the one that its column `partition` names, or the one that every Java client would choose for
its key. Rows with neither are spread: those of one task and one micro-batch share a partition.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow
import pyarrow.compute
from pyspark.sql import DataFrame

from exactly_once_kafka.executors.arrays import booleans, int32s, integers
from exactly_once_kafka.executors.partitioner import partitions_of as partitions_of_keys
from exactly_once_kafka.executors.record_batch import LARGEST, MOST_RECORDS
from exactly_once_kafka.kafka_rows import topic_of_row

SLOWER = 2  # times, that rows may take to compute lest they change places, which takes as long as to write them
WRITER = "exactly_once_writer"  # column: number of the task that is to write the row

PartitionsOf = Callable[[str], int]
Batches = Iterator[pyarrow.RecordBatch]


class Placed(NamedTuple):
    """Rows for one Kafka partition."""

    topic: str
    partition: int
    rows: pyarrow.RecordBatch


def handed_out(
    rows: DataFrame, topic: str | None, partitions: int, writers: int, assign: Callable[[Batches], Batches]
) -> DataFrame:
    """Return the rows so that all of a Kafka partition are in one of Spark's.

    `partitions` is how many the topic has, or a bound on the tasks if the rows name their topics. Where rows have to
    change places, they go to so many `writers`; `assign` is what calls `with_writers`, in tasks of its own. They also
    do where far fewer tasks would otherwise compute them than can run at once: a writer computes what it writes.
    """
    anywhere = topic and not {"key", "partition"} & set(rows.columns)
    if anywhere or writers == 1:
        tasks = partitions if anywhere else 1
        if _at_once(rows) <= SLOWER * tasks:
            return rows.coalesce(tasks)
    fields = [field for field in rows.schema.fields if field.name != "partition"]
    columns = ", ".join(f"`{field.name}` {field.dataType.simpleString()}" for field in fields)
    assigned = rows.mapInArrow(assign, f"{columns}, `partition` int, `{WRITER}` int")
    by_writer = getattr(assigned, "repartitionById", assigned.repartition)  # Spark 4.0 can only go by a hash of it
    handed: DataFrame = by_writer(writers, WRITER).drop(WRITER)
    return handed


def _at_once(rows: DataFrame) -> int:
    """Return how many tasks can compute the rows of a micro-batch at once, or 1 if that is not known."""
    leaves, partitions = rows._jdf.queryExecution().analyzed().collectLeaves(), 1
    for leaf in (leaves.apply(n) for n in range(leaves.size())):
        if leaf.getClass().getSimpleName() == "LogicalRDD":  # what Spark hands to foreachBatch
            partitions = max(partitions, leaf.rdd().getNumPartitions())
    return min(partitions, rows.sparkSession.sparkContext.defaultParallelism)


def gathered(batches: Batches) -> Batches:
    """Yield the rows in batches of MOST_RECORDS or LARGEST bytes at least: a small one takes as long to write."""
    waiting, rows, size = list[pyarrow.RecordBatch](), 0, 0
    for batch in batches:
        waiting.append(batch)
        rows, size = rows + batch.num_rows, size + batch.nbytes
        if rows >= MOST_RECORDS or size >= LARGEST:
            yield from _joined(waiting)
            waiting, rows, size = [], 0, 0
    yield from _joined(waiting)


def _joined(batches: list[pyarrow.RecordBatch]) -> Batches:
    if batches:
        yield from pyarrow.Table.from_batches(batches).combine_chunks().to_batches()


def with_writers(
    batches: Batches, topic: str | None, partitions_of: PartitionsOf, spread: int, writers: int
) -> Batches:
    """Give each row its Kafka partition and the writer of that."""
    for batch in batches:
        for placed in split(batch, topic, partitions_of, spread):
            writer = (zlib.crc32(placed.topic.encode()) + placed.partition) % writers
            rows = placed.rows
            if "partition" in rows.schema.names:
                rows = rows.drop_columns("partition")
            for name, number in (("partition", placed.partition), (WRITER, writer)):
                rows = rows.append_column(name, int32s(np.full(rows.num_rows, number, np.int32)))
            yield rows


def split(batch: pyarrow.RecordBatch, topic: str | None, partitions_of: PartitionsOf, spread: int) -> Iterator[Placed]:
    """Yield the rows of each Kafka partition, in their order. Rows that are to be spread go to the partition `spread`.

    Raises ValueError for a row without a topic.
    """
    for name, rows in _by_topic(batch, topic):
        partitions = _partitions(rows, partitions_of(name), spread)
        present = np.unique(partitions)
        for number in present:
            chosen = rows if len(present) == 1 else rows.filter(booleans(partitions == number))
            yield Placed(name, int(number), chosen)


def _by_topic(batch: pyarrow.RecordBatch, topic: str | None) -> Iterator[tuple[str, pyarrow.RecordBatch]]:
    if topic:
        yield topic, batch
        return
    topics = batch.column("topic")
    for name in pyarrow.compute.unique(topics):
        yield topic_of_row(name.as_py()), batch.filter(pyarrow.compute.equal(topics, name))


def _partitions(rows: pyarrow.RecordBatch, count: int, spread: int) -> npt.NDArray[np.int32]:
    chosen = np.full(rows.num_rows, -1, np.int32)
    if "partition" in rows.schema.names:
        chosen = integers(rows.column("partition"), of_null=-1)
    if "key" in rows.schema.names and count > 1 and (chosen < 0).any():
        chosen = np.where(chosen < 0, partitions_of_keys(rows.column("key"), count), chosen)
    return np.where(chosen < 0, spread % count, chosen)
