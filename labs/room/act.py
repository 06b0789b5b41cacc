"""One act of the room: a stage on fresh topics and a fresh checkpoint, with all that is counted of it.

The stages are those of the staircase. Without a checkpoint each driver begins with an empty directory, and so with the
first record.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from typing import Any

from labs.equipment.topics import create_topic
from labs.pipeline.log.live_traffic import LiveTraffic
from labs.room.batches import WatchedCheckpoint
from labs.room.drivers import Driver
from labs.room.equipment import RoomEquipment
from labs.room.partition_tail import PartitionTail
from labs.room.running_verdict import RunningVerdict
from labs.room.sink_log import Row, SinkLog, marker_fields, result_fields
from labs.room.traffic import RoomTraffic, Speed
from labs.runs import staircase

SINKS = {
    staircase.NO_CHECKPOINT.name: "not-idempotent",
    staircase.CHECKPOINT.name: "not-idempotent",
    staircase.IDEMPOTENT.name: "at-least-once",
    staircase.TRANSACTIONS.name: "no-marker",
    staircase.EXACTLY_ONCE.name: "exactly-once",
}
STAGES = {stage.name: stage for stage in staircase.STAGES}
TRIGGER = 0.5  # seconds
TRANSACTION_TIMEOUT = 10.0  # seconds: a frozen driver's transaction is given up after that


class Act:
    """Act `number`, which plays `stage`. Raises KafkaUnreachable if there is nobody to make its topics."""

    def __init__(self, equipment: RoomEquipment, number: int, stage: str, rate: float, on: bool, seed: int):
        self.number, self.stage = number, STAGES[stage]
        self.source, self.sink = f"source-{number}", f"sink-{number}"
        self._equipment = equipment
        servers = equipment.broker.bootstrap_servers
        for topic in (self.source, self.sink):
            create_topic(servers, topic, 1)
        self.verdict = RunningVerdict()
        self.traffic = RoomTraffic(servers, self.source, rate, on, seed, self.verdict.watch)
        ports = lambda: equipment.ports  # noqa: E731
        self.log = SinkLog(PartitionTail(self.sink, ports), result_fields)
        self.markers = SinkLog(PartitionTail(f"{self.sink}-marker", ports), marker_fields)
        self.marker: Row | None = None
        self.checkpoint = self._new_checkpoint(0)
        self.watermark_ms = 0  # the highest that was noted, and behind which the log has been read
        self._beginnings = self._named = 0  # behind which offset no epoch has been looked at
        self._speed = Speed()

    @property
    def live(self) -> LiveTraffic:
        return self.traffic.live

    @property
    def keeps_checkpoint(self) -> bool:
        return self.stage.keeps_checkpoint

    @property
    def has_transactions(self) -> bool:
        return SINKS[self.stage.name] in ("no-marker", "exactly-once")

    @property
    def has_marker(self) -> bool:
        return self.stage is staircase.EXACTLY_ONCE

    def job_options(self) -> Mapping[str, Any]:
        """Return the options of a driver that is started now."""
        if not self.keeps_checkpoint:
            self.begin_anew()
        return {
            "bootstrap_servers": self._equipment.broker.bootstrap_servers,
            "checkpoint": self.checkpoint.directory,
            "sink": SINKS[self.stage.name],
            "name": self.sink,
            "source_topic": self.source,
            "sink_topic": self.sink,
            "trigger": TRIGGER,
            "transaction_timeout_ms": int(TRANSACTION_TIMEOUT * 1000),
        }

    def begin_anew(self) -> None:
        """Take an empty checkpoint; the one before is left to who still writes to it."""
        self._beginnings += 1
        self.checkpoint = self._new_checkpoint(self._beginnings)

    def hear(self, driver: Driver, event: Mapping[str, Any]) -> None:
        """Take note that a driver has begun a batch."""
        if event["event"] == "begins":
            self.checkpoint.begun[event["batch"]].append(driver.number)

    def look(self, drivers: Mapping[int, Driver]) -> None:
        """Bring everything up to date. Raises OSError when the log cannot be read: then it is as it was."""
        self.checkpoint.look()
        noted = self.checkpoint.watermark_ms  # before the log is read: whatever it closed is in there
        self.read_log(drivers)
        if self.log.current:
            self.watermark_ms = max(self.watermark_ms, noted)
        self.verdict.close(self.watermark_ms, {(row.window, row.ip) for row in self.log.undecided})  # type: ignore[misc]
        if self.has_marker:
            for row in self.markers.read():
                self.marker = row

    def read_log(self, drivers: Mapping[int, Driver]) -> None:
        """Read what is new in the log. Raises OSError."""
        rows = self.log.read(self.verdict.has)
        for row in rows:
            row.copy = False
            if self.verdict.has(row):
                self.log.count_copy(row)
            self.verdict.add([row])
        if drivers:  # who only waits for a row has none to name
            for row in [each for each in self.log.entries if each.offset >= self._named and each.epoch >= 0]:
                self._name_epoch(row, drivers)
            self._named = self.log.end

    def counted(self) -> dict[str, Any]:
        """Return what is counted of the room's state."""
        records = self.checkpoint.records
        behind = max(0, self.live.records - records)
        return {"records": records, "per_second": self._speed.of(records), "behind": behind}

    def close(self) -> None:
        """End the traffic, hang up, and delete the checkpoints, when no driver is left."""
        self.live.close()
        self.log.close()
        self.markers.close()
        for directory in self._equipment.directory.glob(f"checkpoint-{self.number}-*"):
            shutil.rmtree(directory, ignore_errors=True)

    def _name_epoch(self, row: Row, drivers: Mapping[int, Driver]) -> None:
        """Say whose epoch it is: that of the driver which has begun the batch last."""
        begun = None if row.batch is None else self.checkpoint.begun.get(row.batch)
        driver = drivers.get(begun[-1]) if begun else None
        if driver:
            driver.epoch = row.epoch

    def _new_checkpoint(self, beginning: int) -> WatchedCheckpoint:
        return WatchedCheckpoint(self._equipment.directory / f"checkpoint-{self.number}-{beginning}")
