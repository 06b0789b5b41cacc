"""Finds the source record of each row, and decides which rows were published before. It does no I/O.

In Real-Time Mode an epoch has no plan: Spark notes where it ended, after it ran. A repeated epoch begins where the last
logged one ended, and may end elsewhere than the first time. So "epoch 7 is done" does not say which rows are published,
but "record 41 of partition 0 is done" does.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from pyspark.sql import Row

COLUMNS = {"key", "value", "source"}
TO_DO = 'select("key", "value", struct("topic", "partition", "offset").alias("source")) right after the source'


class Place(NamedTuple):
    """The place of a row: its epoch, the offset of its source record, and its number among the rows of that record.

    The first row of a record has the number 1. A marker has the place of the last row that its transaction published.
    """

    epoch: int
    offset: int
    row: int


Rule = Callable[[Place, Place | None], bool]


def by_place(row: Place, marker: Place | None) -> bool:
    """Tell whether the row was published before; `marker` is None if nothing was."""
    return marker is not None and (row.offset, row.row) <= (marker.offset, marker.row)


class PlacedRow(NamedTuple):
    """A row to publish, and the topic and partition of the source that it comes from."""

    source: tuple[str, int]
    place: Place
    key: bytes | None
    value: bytes | None


class SourceRows:
    """Gives each row of a task its place. The rows of a task must be of one source partition, in its order."""

    def __init__(self, epoch: int) -> None:
        self._last = Place(epoch, -1, 0)
        self._source: tuple[str, int] | None = None

    def placed(self, row: Row) -> PlacedRow:
        """Return the next row with its place. Raises ValueError for one that cannot be published."""
        fields = row.asDict()
        if not {"value", "source"} <= fields.keys() <= COLUMNS:
            raise ValueError(
                f"the rows have the columns {', '.join(fields)}; expected value, source and perhaps key: {TO_DO}"
            )
        value, key = _bytes("value", fields["value"]), _bytes("key", fields.get("key"))
        topic, partition, offset = _source(fields["source"])
        self._source = self._source or (topic, partition)
        if self._source != (topic, partition):
            raise ValueError(
                f"the task has rows of {self._source} and of {(topic, partition)}; expected those of one partition of "
                "the source, as they come in Real-Time Mode without a shuffle"
            )
        if offset < self._last.offset:
            raise ValueError(
                f"a row of the source's offset {offset} came after one of {self._last.offset}; expected the order of "
                "the source: let nothing between source and sink move rows from one task to another, or sort them"
            )
        number = self._last.row + 1 if offset == self._last.offset else 1
        self._last = Place(self._last.epoch, offset, number)
        return PlacedRow(self._source, self._last, key, value)


def _source(source: Any) -> tuple[str, int, int]:
    try:
        return str(source["topic"]), int(source["partition"]), int(source["offset"])
    except (TypeError, ValueError, KeyError) as error:
        raise ValueError(
            f"column 'source' must have topic, partition and offset, and is {source!r}: {TO_DO}"
        ) from error


def _bytes(column: str, value: Any) -> bytes | None:
    if isinstance(value, str):
        return value.encode()
    if isinstance(value, bytes | bytearray):
        return bytes(value)
    if value is not None:
        raise ValueError(f"column {column!r} must be string or binary, and has {value!r:.40}: cast it, or use to_json")
    return None
