"""One Kafka transaction that the executors write and the driver marks and ends.

The driver gets a producer id and an epoch, and lends both to the tasks; no client library can adopt them, so the record
batches are made here. A batch that is likely to be small the driver writes itself, in the same way: to hand rows to
Python on the executors takes longer than to write them. It also writes what they cannot, for want of this library.

Guarantee: the driver commits only when each task ran once, wrote to partitions that no other task wrote to,
and has had every one of its rows acknowledged. Where it stops: Kafka 4.0 and later, with transaction version 2.
"""

from __future__ import annotations

import contextlib
import dataclasses
import random
import time
from collections.abc import Callable
from typing import cast

from py4j.protocol import Py4JJavaError
from pyspark.errors import PythonException
from pyspark.sql import DataFrame
from pyspark.sql.functions import expr

from exactly_once_kafka.batch import Marker
from exactly_once_kafka.errors import Incomplete
from exactly_once_kafka.executors.first_attempt import THREAD, THREAD_OF_FIRST_ROW
from exactly_once_kafka.executors.lacking import LACKING, lacking_in, reporting
from exactly_once_kafka.executors.left_open import LeftOpen
from exactly_once_kafka.executors.next_batch import NextBatch
from exactly_once_kafka.executors.partition_writer import PartitionWriter, Piece
from exactly_once_kafka.executors.placing import Batches, gathered, handed_out
from exactly_once_kafka.executors.record_batch import ProducerId
from exactly_once_kafka.executors.report import AGAIN, Report, counted
from exactly_once_kafka.executors.stage_runs import ran_again
from exactly_once_kafka.executors.write_task import WriteTask
from exactly_once_kafka.kafka_rows import KafkaBatches, Tags, as_bytes
from exactly_once_kafka.options import LOGGER
from exactly_once_kafka.patience import Patience
from exactly_once_kafka.producer import TOO_OLD
from exactly_once_kafka.transaction import Transaction

# Seconds for which a task keeps its core though Kafka acknowledges nothing. Then the driver waits, which needs none.
KEEPS_CORE = 10


class LentEpoch:
    """The epoch of the next transaction: the one that the `last` one's end gave, or one yet to be asked for."""

    def __init__(self, left_open: LeftOpen, next_batch: NextBatch, last: SharedTransaction | None = None):
        self._left_open, self._next_batch, self._last = left_open, next_batch, last
        self._begun = time.monotonic()

    @property
    def promising(self) -> bool:
        """Tell whether there is an epoch, not too old to be trusted."""
        given = self._last is not None and self._last.following is not None
        return given and time.monotonic() - self._begun < TOO_OLD

    @property
    def few_rows(self) -> bool:
        """Tell whether the next batch is likely to be small, so that the driver writes it."""
        return self.promising and self._next_batch.is_for_driver

    def take(self, patience: Patience) -> SharedTransaction:
        """Return the next transaction. Raises KafkaException, TimeoutError, QueryStopped."""
        last = self._last if self.promising else None
        producer = last.succeeded(patience.anew()) if last else self._left_open.fence(patience.anew())
        known = last.marker if last else None
        return SharedTransaction(self._left_open, producer, self._next_batch, known)

    def give_up(self) -> None:
        """Do nothing: an epoch is asked for when it is taken."""


class SharedTransaction(Transaction):
    """A transaction under `producer`; after its end, `following` is the epoch of the next one.

    `known` is the marker that the last one committed, if its end gave this epoch.
    """

    def __init__(self, left_open: LeftOpen, producer: ProducerId, next_batch: NextBatch, known: Marker | None = None):
        self._left_open, self._coordinator = left_open, left_open.coordinator
        self._producer, self._next_batch = producer, next_batch
        self.known = known
        self.following: ProducerId | None = None
        self.marker: Marker | None = None
        self._encoded: Piece | None = None  # the marker, once it is encoded
        self._marking: PartitionWriter | None = None  # once it is on its way
        self._written: dict[tuple[str, int], int] = {}  # topic, partition -> rows
        self._itself = True  # is it this process that writes them

    def begin(self, marker: Marker) -> None:
        """Do no more than remember the marker: the first record of a partition begins it."""
        self.marker = marker

    def write(self, rows: KafkaBatches, tags: Tags, patience: Patience, middle: Callable[[], object]) -> int:
        if self._next_batch.is_for_driver:
            rows.begin()
        elif self._next_batch.to_try > 0:
            rows.begin_if_few(self._next_batch.to_try)
        # What Spark computes for the driver already, the executors must not compute as well.
        reports = None if rows.begun else self._by_executors(rows, tags, patience)
        self._itself = reports is None
        if reports is None:
            reports = [self._by_driver(rows, tags, patience)]
        count = counted(reports)
        self._written = {(topic, partition): rows for each in reports for topic, partition, rows in each.written}
        self._next_batch.comes_after(count, sum(each.size for each in reports))
        if count:
            middle()
        return count

    def mark(self, patience: Patience) -> None:
        if self._marking is None:
            topic = self._coordinator.marker_topic
            encoded = self._encoded or self._encode(rows_before=self._written.get((topic, 0), 0))  # rows may go there
            self._marking = self._coordinator.marking(encoded, patience.anew())
        self._coordinator.marked(self._marking, patience.anew())

    def commit(self, patience: Patience) -> None:
        self.following = self._coordinator.end(self._producer, True, patience.anew())

    def succeeded(self, patience: Patience) -> ProducerId:
        """Return the epoch of the next transaction, once this one, which was committed, is so in all its partitions."""
        following = cast(ProducerId, self.following)
        ended = self._left_open.ended(self._producer, True, following, patience, self._written, self._itself)
        self.following = ended
        return ended

    def abort(self, seconds: float) -> None:
        self._coordinator.end(self._producer, False, Patience(seconds))

    def _encode(self, rows_before: int) -> Piece:
        return self._coordinator.encoded(cast(Marker, self.marker), self._producer, rows_before)

    def _task(self, rows: KafkaBatches, tags: Tags, patience: Patience) -> WriteTask:
        parallelism = 1 if rows.begun else rows.rows.sparkSession.sparkContext.defaultParallelism
        partitions = self._coordinator.partitions(rows.topic, patience.anew()) if rows.topic else parallelism
        return WriteTask(
            self._coordinator.connection,
            self._coordinator.encoding,
            self._coordinator.name,
            self._producer,
            rows.topic,
            tags,
            patience.seconds if rows.begun else min(patience.seconds, KEEPS_CORE),
            spread=random.randrange(1 << 16),
            writers=min(partitions, parallelism),
            partitions=partitions,
        )

    def _by_driver(self, rows: KafkaBatches, tags: Tags, patience: Patience) -> Report:
        rows.begin()
        task = self._task(rows, tags, patience)
        with contextlib.closing(rows):
            self._encode_ahead(task.topic)
            together = self._marking_with(gathered(iter(rows)), patience)
            return task.reported(lambda: task.write_all(self._coordinator.cluster, together, patience.lasts))

    def _encode_ahead(self, topic: str | None) -> None:
        """Encode the marker while Spark computes, if no row can come before it in its partition."""
        if topic not in (None, self._coordinator.marker_topic):
            self._encoded = self._encode(rows_before=0)

    def _marking_with(self, batches: Batches, patience: Patience) -> Batches:
        """Send the marker with the first rows, for both then wait at once until their partitions are enrolled."""
        for batch in batches:
            if batch.num_rows and self._encoded and not self._marking:
                self._marking = self._coordinator.marking(self._encoded, patience.anew())
            yield batch

    def _by_executors(self, rows: KafkaBatches, tags: Tags, patience: Patience) -> list[Report] | None:
        """Have the executors write; return None if they lack what it takes, and nothing is written then.

        Where Kafka is silent, wait until it has aborted, and have them write again.
        """
        task = self._task(rows, tags, patience)
        reports, silence = _written(task, rows.rows), patience.anew()
        while any(report.timed_out for report in reports) and silence.lasts():
            task = self._anew(task, patience)
            reports = _written(task, rows.rows)
        lacking = next((report.lacking for report in reports if report.lacking), None)
        if lacking is None:
            return [*reports, Report(error=AGAIN)] if _ran_again(reports, rows.rows) else reports
        LOGGER.warning("sink %r: the driver writes, since executors cannot: %s", self._coordinator.name, lacking)
        self._next_batch.executors_can = False
        self._anew(task, patience)  # some may have written
        return None

    def _anew(self, task: WriteTask, patience: Patience) -> WriteTask:
        """Abort what the tasks wrote, and return what they may do under the epoch that the abort gives.

        Nobody can have moved the marker since and left that one valid.
        """
        following = self._coordinator.end(task.producer, False, patience.anew())
        self._producer = self._left_open.ended(task.producer, False, following, patience.anew())
        return dataclasses.replace(task, producer=self._producer)


def _ran_again(reports: list[Report], rows: DataFrame) -> bool:
    """Tell whether Spark ran tasks again, where that would have to be committed. Raises Incomplete."""
    if not reports or any(report.error for report in reports):
        return False
    again = ran_again(rows.sparkSession.sparkContext, {report.stage for report in reports})
    if again is None and not all(report.rows for report in reports):  # tasks with rows can tell themselves
        raise Incomplete("Spark does not say whether it ran tasks again; spark.ui.retainedStages may be too small")
    return bool(again)


def _written(task: WriteTask, rows: DataFrame) -> list[Report]:
    """Have the executors write, and return their reports; one report, if they cannot even begin."""
    handed = handed_out(as_bytes(rows, task.topic), task.topic, task.partitions, task.writers, task.assign)
    first_known = handed.withColumn(THREAD, expr(THREAD_OF_FIRST_ROW))
    try:
        answers = first_known.mapInArrow(reporting(task.write), "report string").collect()
    except (PythonException, Py4JJavaError) as error:
        if report := Report.in_trace(str(error)):
            return [report]
        if (lacking := lacking_in(str(error))) is None:
            raise
        return [Report(error=LACKING + lacking)]
    return [Report.parse(row.report) for row in answers]
