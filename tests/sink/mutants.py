"""The exactly-once sink with one thing of its protocol taken out or out of place. The tests must catch each."""

from __future__ import annotations

from dataclasses import replace
from typing import Any
from unittest.mock import patch

from pyspark import TaskContext

from exactly_once_kafka.executors import first_attempt, shared_transaction, write_task
from exactly_once_kafka.executors.write_task import WriteTask
from exactly_once_kafka.producer import PendingProducer
from exactly_once_kafka.sink import ExactlyOnceKafkaSink


class NoMarker(ExactlyOnceKafkaSink):
    """Step 3 removed: every batch is written, whether it was committed before or not."""

    def decide(self, marker, batch):
        return False


class NoPlan(ExactlyOnceKafkaSink):
    """Step 3 by number alone: any batch 7 is taken for the one that was committed."""

    def decide(self, marker, batch):
        return super().decide(marker and replace(marker, plan="any"), replace(batch, plan="any", previous_plan="any"))


class SkipsWithoutDraining(ExactlyOnceKafkaSink):
    """Step 3 cut short: a batch that is done returns early, and Spark's state for it is never written."""

    def drain(self, rows):
        pass


class OneProducer(ExactlyOnceKafkaSink):
    """Step 1 only once: one producer, and so one epoch, for the life of the query."""

    kept = None

    def _new_epoch(self, retire=None):
        self.kept = self.kept or super()._new_epoch()
        return self.kept


class MarkerBeforeEpoch(ExactlyOnceKafkaSink):
    """Steps 1 and 2 exchanged: the marker is read first, and may change before the epoch is taken."""

    def _new_epoch(self, retire=None):
        return ReadsFirst(self)


class ReadsFirst:
    """Stands for a producer, and reads the marker when it is taken; what is read afterwards is what it read."""

    promising, few_rows = True, False

    def __init__(self, sink):
        self._sink = sink

    def take(self, patience):
        store, self._sink._store = self._sink._store, self
        self._store, self._early = store, store.read(patience)
        self._sink.points("before_epoch", self._early.batch_id + 1 if self._early else 0)
        return PendingProducer(self._sink._settings).take(patience)

    def give_up(self):
        pass

    def read(self, patience):
        self._sink._store = self._store
        return self._early

    def send(self, *given):
        self._store.send(*given)


class Replaced(ExactlyOnceKafkaSink):
    """The sink by executors, with `part` of shared_transaction replaced by `mutant`."""

    part: str
    mutant: Any

    def __call__(self, rows, batch_id):
        with patch.object(shared_transaction, self.part, self.mutant):
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
        with patch.object(first_attempt, "of_first_stage", lambda rows: True):
            return super()._write_once(batches)


class StagesNotTold(Replaced):
    """A task writes again if Spark runs its whole stage again, as one does that has no row to tell the stage by."""

    part, mutant = "WriteTask", WritesInAnyStage


class StagesRunAgain(StagesNotTold):
    """And the driver does not ask Spark for the stage's attempts either."""

    def __call__(self, rows, batch_id):
        with patch.object(shared_transaction, "ran_again", lambda *_: False):
            super().__call__(rows, batch_id)


class NotHandedOut(Replaced):
    """Rows are written by the task that computes them, wherever they go."""

    part, mutant = "handed_out", staticmethod(lambda rows, *_: rows)


class EndsWithItsOwnEpoch(shared_transaction.SharedTransaction):
    def commit(self, patience):
        super().commit(patience)
        self.following = self._producer


class EpochNotAdvanced(Replaced):
    """The next transaction has the epoch of the last one."""

    part, mutant = "SharedTransaction", EndsWithItsOwnEpoch


class ForgetsSilence(WriteTask):
    def _write_once(self, batches):
        with patch.object(write_task, "_given_up", None):
            return super()._write_once(batches)


class WritesAgainAtOnce(shared_transaction.SharedTransaction):
    def _task(self, *given):
        return ForgetsSilence(**vars(super()._task(*given)))

    def _anew(self, task, patience):
        return task


class SilenceNotAborted(Replaced):
    """What Kafka was silent for is written again under the same epoch, and in the same transaction."""

    part, mutant = "SharedTransaction", WritesAgainAtOnce
