"""A batch that is handed over twice: harmless with the same rows; with others, those would be drained, and be lost.

    def publish(rows, batch_id):
        sink(rows.where("kind = 'a'"), batch_id)
        sink(rows.where("kind = 'b'"), batch_id)  # the marker says that the batch is done

Known is what this process has published last under each name.
"""

from __future__ import annotations

from typing import NamedTuple

from py4j.protocol import Py4JError
from pyspark.sql import DataFrame


class HandedOver(NamedTuple):
    """What was published, and by which run of which query."""

    run: tuple[str, str]
    batch_id: int
    rows: DataFrame

    def is_other_part(self, later: HandedOver) -> bool:
        """Tell whether `later` is the same batch with rows that are computed otherwise."""
        if (self.run, self.batch_id) != (later.run, later.batch_id) or self.rows is later.rows or not self.run[1]:
            return False
        try:
            return not self.rows.sameSemantics(later.rows)
        except Py4JError:
            return True
