"""A batch that is handed over twice: harmless with the same rows for the same place; all else would be lost.

    def publish(rows, batch_id):
        sink(rows.where("kind = 'a'"), batch_id)
        sink(rows.where("kind = 'b'"), batch_id)  # the marker says that the batch is done

    def publish(rows, batch_id):
        ExactlyOnceKafkaSink("orders", "raw", …)(rows, batch_id)
        ExactlyOnceKafkaSink("orders", "audit", …)(rows, batch_id)  # it is done under this name

Known is what was handed over last in this process, by each run of a query under each name.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from py4j.protocol import Py4JError
from pyspark.sql import DataFrame

if TYPE_CHECKING:
    from exactly_once_kafka.batch import Batch


class HandedOver(NamedTuple):
    """What was handed over of a batch, and where it was to go."""

    batch: Batch
    rows: DataFrame
    goes_to: str = ""

    def is_other_part(self, later: HandedOver) -> bool:
        """Tell whether `later` is the same batch with rows that are computed otherwise."""
        if not self.is_same_batch(later) or self.rows is later.rows:
            return False
        try:
            # To Spark, columns that are only named otherwise are the same: key AS value, value AS key.
            return self.rows.columns != later.rows.columns or not self.rows.sameSemantics(later.rows)
        except Py4JError:
            return True

    def goes_elsewhere(self, later: HandedOver) -> bool:
        """Tell whether `later` is the same batch for another place."""
        return self.is_same_batch(later) and self.goes_to != later.goes_to

    def is_same_batch(self, later: HandedOver) -> bool:
        return bool(self.batch.run) and _identity(self.batch) == _identity(later.batch)


def _identity(batch: Batch) -> tuple[str, str, int]:
    return batch.query_id, batch.run, batch.batch_id
