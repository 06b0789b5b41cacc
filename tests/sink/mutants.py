"""The exactly-once sink with one thing of its protocol taken out or out of place. The tests must catch each."""

from __future__ import annotations

from dataclasses import replace

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

    promising = True

    def __init__(self, sink):
        self._sink = sink

    def take(self, patience):
        store, self._sink._store = self._sink._store, self
        self._store, self._early = store, store.read(patience)
        self._sink.points("before_epoch", self._early.batch_id + 1 if self._early else 0)
        return PendingProducer(self._sink._settings).take(patience)

    def read(self, patience):
        self._sink._store = self._store
        return self._early
