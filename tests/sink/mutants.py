"""The exactly-once sink with one thing of its protocol taken out or out of place. The tests must catch each."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Any
from unittest.mock import patch

from pyspark import TaskContext

from exactly_once_kafka import driver_transport, protocol
from exactly_once_kafka.driver_transport import DriverTransport
from exactly_once_kafka.executors import report, transport, write_task
from exactly_once_kafka.executors.write_task import WriteTask
from exactly_once_kafka.protocol import exactly_once, is_published
from exactly_once_kafka.sink import ExactlyOnceKafkaSink
from labs.pipeline.broken_protocols import (
    done_batch_not_drained,
    marker_ignored,
    marker_read_before_fencing,
    one_epoch_for_all_batches,
)


class NoMarker(ExactlyOnceKafkaSink):
    """Every batch is written, whether it was published before or not."""

    protocol = staticmethod(marker_ignored)


class NoPlan(ExactlyOnceKafkaSink):
    """A batch is known by its number alone: any batch 7 is taken for the one that was published."""

    @staticmethod
    def protocol(batch, has_epoch):
        def without_plan(marker, batch):
            return is_published(marker and replace(marker, plan="any"), replace(batch, plan="any", previous_plan="any"))

        with patch.object(protocol, "is_published", without_plan):
            yield from exactly_once(batch, has_epoch)


class SkipsWithoutDraining(ExactlyOnceKafkaSink):
    """A batch that is published is not executed, and Spark's state for it is never written."""

    protocol = staticmethod(done_batch_not_drained)


class KeepsItsProducer(DriverTransport):
    def rows(self):
        pending = self.pending
        super().rows()
        self.pending = pending
        return True


class OneProducer(ExactlyOnceKafkaSink):
    """One producer, and so one epoch, for the life of the query."""

    protocol = staticmethod(one_epoch_for_all_batches)

    def __call__(self, rows, batch_id):
        with patch.object(driver_transport, "DriverTransport", KeepsItsProducer):
            super().__call__(rows, batch_id)


class MarkerBeforeEpoch(ExactlyOnceKafkaSink):
    """The marker is read first, and may change before the epoch is taken."""

    protocol = staticmethod(marker_read_before_fencing)


class Replaced(ExactlyOnceKafkaSink):
    """The sink by executors, with `part` of transport replaced by `mutant`."""

    part: str
    mutant: Any

    def __call__(self, rows, batch_id):
        with patch.object(transport, self.part, self.mutant):
            super().__call__(rows, batch_id)


class NotCounted(Replaced):
    """The driver commits whatever the tasks report."""

    part, mutant = "counted", staticmethod(len)


class WritesInAnyAttempt(WriteTask):
    def _write_once(self, batches):
        with patch.object(TaskContext, "attemptNumber", lambda self: 0):
            return super()._write_once(batches)


class TasksRunAgain(Replaced):
    """A task that Spark runs again writes again."""

    part, mutant = "WriteTask", WritesInAnyAttempt


class WritesInAnyStage(WriteTask):
    def _write_once(self, batches):
        with patch.object(report, "of_first_stage", lambda rows: True):
            return super()._write_once(batches)


class StagesNotTold(Replaced):
    """A task writes again if Spark runs its whole stage again, as one does that has no row to tell the stage by."""

    part, mutant = "WriteTask", WritesInAnyStage


class StagesRunAgain(StagesNotTold):
    """And the driver does not ask Spark for the stage's attempts either."""

    def __call__(self, rows, batch_id):
        with patch.object(transport, "ran_again", lambda *_: False):
            super().__call__(rows, batch_id)


class NotHandedOut(Replaced):
    """Rows are written by the task that computes them, wherever they go."""

    part, mutant = "repartition_for_kafka", staticmethod(lambda rows, *_: rows)


class EndsWithItsOwnEpoch(transport.ExecutorsTransport):
    def commit(self):
        producer = self._under_way.producer
        super().commit()
        self._following = replace(self._following, producer=producer)


class EpochNotAdvanced(Replaced):
    """The next transaction has the epoch of the last one."""

    part, mutant = "ExecutorsTransport", EndsWithItsOwnEpoch


class ForgetsSilence(WriteTask):
    def _write_once(self, batches):
        with patch.object(write_task, "_given_up", None):
            return super()._write_once(batches)


class WritesAgainAtOnce(transport.ExecutorsTransport):
    def _task(self, producer):
        return ForgetsSilence(**vars(super()._task(producer)))

    def abort(self):
        self._lease = transport.EpochLease(self._under_way.producer, time.monotonic())


class SilenceNotAborted(Replaced):
    """What Kafka was silent for is written again under the same epoch, and in the same transaction."""

    part, mutant = "ExecutorsTransport", WritesAgainAtOnce
