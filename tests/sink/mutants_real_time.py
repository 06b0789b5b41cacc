"""Real-time sinks that are wrong in one place, which the tests must find."""

from __future__ import annotations

from exactly_once_kafka.batch import Marker
from exactly_once_kafka.real_time.partition_writer import PartitionWriter
from exactly_once_kafka.real_time.position import BEGINNING, Position
from exactly_once_kafka.real_time.sink import RealTimeKafkaSink

ALL = Position(1 << 62, 1)


class ForgetfulWriter(PartitionWriter):
    """Writes whatever it gets."""

    def _continue_from(self, marker: Marker | None) -> Position:
        return BEGINNING


class NoMarker(RealTimeKafkaSink):
    """Transactions, and nothing that would recognise a row that was published before."""

    kind_of_writer = ForgetfulWriter


class WriterOfEpochs(PartitionWriter):
    """Takes an epoch that has a marker for one that is done."""

    def _continue_from(self, marker: Marker | None) -> Position:
        return ALL if marker is not None and marker.batch_id >= self._task.epoch else BEGINNING


class MarkerOfEpochs(RealTimeKafkaSink):
    """The marker says which epoch was committed last, as it does where an epoch has a plan."""

    kind_of_writer = WriterOfEpochs


class WriterOfOffsets(PartitionWriter):
    """Takes a record of which one row was published for one of which all were."""

    def _continue_from(self, marker: Marker | None) -> Position:
        return BEGINNING if marker is None else Position(Position.parse(marker.plan).offset, 1 << 62)


class MarkerOfOffsets(RealTimeKafkaSink):
    """The marker has the offset of the last record, and not how many of its rows were published."""

    kind_of_writer = WriterOfOffsets
