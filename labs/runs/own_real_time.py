"""The real-time sink with one thing left to a student: which rows were published before. For lesson 16."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

from exactly_once_kafka.batch import Marker
from exactly_once_kafka.real_time.partition_writer import PartitionWriter
from exactly_once_kafka.real_time.position import Position
from exactly_once_kafka.real_time.sink import RealTimeKafkaSink


class Place(NamedTuple):
    """Where a row is from: the epoch that it comes in, and the offset of the source's record that it was made of.

    Of a marker: the last row that its transaction published.
    """

    epoch: int
    offset: int


Published = Callable[[Place, Place | None], bool]


class OwnWriter(PartitionWriter):
    """Skips a row if `published(row, marker)` says so; `marker` is None where nothing was published yet."""

    def __init__(self, published: Published, *arguments: Any):
        super().__init__(*arguments)
        self._published = published
        self._marker: Place | None = None

    def _continue_from(self, marker: Marker | None) -> Position:
        position = super()._continue_from(marker)
        self._marker = Place(marker.batch_id, position.offset) if marker else None
        return position

    def _was_published(self, position: Position) -> bool:
        return bool(self._published(Place(self._task.epoch, position.offset), self._marker))


class OwnRealTimeSink(RealTimeKafkaSink):
    """A RealTimeKafkaSink for a query that makes one row of each record; `options` are as there."""

    def __init__(self, published: Published, name: str, topic: str, **options: Any):
        super().__init__(name, topic, **options)
        self.kind_of_writer = functools.partial(OwnWriter, published)
