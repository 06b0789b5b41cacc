"""A batch that is handed over twice: harmless with the same rows; with others, those would be drained, and be lost.

    def publish(rows, batch_id):
        sink(rows.where("kind = 'a'"), batch_id)
        sink(rows.where("kind = 'b'"), batch_id)  # the marker says that the batch is done

Known is what was handed over last in this process, under each name.
"""

from __future__ import annotations

from typing import NamedTuple

from py4j.protocol import Py4JError
from pyspark.sql import DataFrame

from exactly_once_kafka.batch import Batch


class HandedOver(NamedTuple):
    """What was handed over of a batch."""

    batch: Batch
    rows: DataFrame

    def is_other_part(self, later: HandedOver) -> bool:
        """Tell whether `later` is the same batch with rows that are computed otherwise."""
        if not self.batch.run or _identity(self.batch) != _identity(later.batch) or self.rows is later.rows:
            return False
        try:
            return not self.rows.sameSemantics(later.rows)
        except Py4JError:
            return True


def _identity(batch: Batch) -> tuple[str, str, int]:
    return batch.query_id, batch.run, batch.batch_id
