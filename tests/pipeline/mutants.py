"""The exactly-once sink with one step of its protocol taken out or out of place. The tests must catch each."""

from __future__ import annotations

from labs.pipeline import ExactlyOnceKafkaSink
from labs.pipeline.fault_points import reach
from labs.pipeline.marker import Marker
from labs.pipeline.transactional_producer import Fresh


class NoMarker(ExactlyOnceKafkaSink):
    """Step 3 removed: every batch is written, whether it was committed before or not."""

    def _is_committed(self, *_) -> bool:
        return False


class SkipsWithoutDraining(ExactlyOnceKafkaSink):
    """Step 3 cut short: a batch that is done returns early, and Spark's state for it is never written."""

    def _publish_once(self, rows, batch_id, query_id):
        marker = self._marker.read()
        if marker and self._is_committed(marker, batch_id, query_id):
            return None
        return super()._publish_once(rows, batch_id, query_id)


class Reordered(ExactlyOnceKafkaSink):
    """What the two below share: the body of a batch, after whichever way they came by a producer."""

    def _write(self, rows, batch_id, query_id, producer):
        reach("before_write", batch_id)
        producer.begin_transaction()
        self._send(rows, batch_id, producer)
        self._marker.send(Marker(batch_id, query_id), producer, self._timeout)
        reach("before_commit", batch_id)
        producer.commit_transaction(self._timeout)
        reach("after_commit", batch_id)
        return producer


class MarkerBeforeEpoch(Reordered):
    """Steps 1 and 2 exchanged: the marker is read first, and may change before the epoch is taken."""

    def _publish_once(self, rows, batch_id, query_id):
        if self._is_committed(self._marker.read(), batch_id, query_id):
            rows.write.format("noop").mode("overwrite").save()
            return None
        reach("before_epoch", batch_id)
        return self._write(rows, batch_id, query_id, Fresh(self._settings).take(self._timeout))


class OneProducer(Reordered):
    """Step 1 only once: one producer, and so one epoch, for the life of the query."""

    kept = None

    def __call__(self, rows, batch_id):
        self._publish_once(rows, batch_id, rows.sparkSession.sparkContext.getLocalProperty("sql.streaming.queryId"))

    def _publish_once(self, rows, batch_id, query_id):
        self.kept = self.kept or Fresh(self._settings).take(self._timeout)
        if self._is_committed(self._marker.read(), batch_id, query_id):
            rows.write.format("noop").mode("overwrite").save()
        else:
            self._write(rows, batch_id, query_id, self.kept)
