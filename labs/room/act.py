"""One act of the room: one stage of the staircase, with its own topics, checkpoint, traffic, log and running verdict.

At a stage without a checkpoint each driver begins with an empty directory, and so with the first record.

The traffic is seeded accesses of a few clients, at a rate that can be changed and paused. Event time passes SPEED times
as fast as the clock, at any rate, so that a window is complete every second. Limitations: while the traffic is paused,
event time stands still, and the last windows stay open. The checkpoint must be a local directory, and belongs to a
query with one source topic.
"""

from __future__ import annotations

import contextlib
import shutil
import time
from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from labs.equipment.topics import create_topic
from labs.evidence.checkpoint.checkpoint import log_files, read_plan
from labs.pipeline.log.access_log import Access
from labs.pipeline.log.generate import START_MS, Traffic
from labs.pipeline.log.live_traffic import LiveTraffic
from labs.pipeline.records import WINDOW_MS
from labs.room.drivers import Driver
from labs.room.equipment import RoomEquipment
from labs.room.running_verdict import RunningVerdict
from labs.room.sink_log import PartitionTail, Row, SinkLog, marker_fields, result_fields
from labs.room.state import BATCHES_SHOWN
from labs.runs import staircase

KEPT = 100  # batches, as in Spark's own checkpoint
TICK_NS = 1_000_000_000  # longer than the tick of any file system's clock


@dataclass
class WatchedCheckpoint:
    """What is known of the checkpoint of a running query: its files, and the batches that drivers report.

    A batch is planned when its offsets file is there, and noted when its commit file is. `look` reads only new files.
    """

    directory: Path
    watermarks: dict[int, int] = field(default_factory=dict)  # of the planned batches, in epoch millis
    ends: dict[int, int] = field(default_factory=dict)  # planned batch -> the source's end offset
    noted: int = -1  # the last noted batch
    begun: defaultdict[int, list[int]] = field(default_factory=lambda: defaultdict(list))  # batch -> drivers, in order
    _seen: dict[str, int] = field(default_factory=dict)

    def look(self) -> None:
        """Read the files that are new since the last look."""
        if self._changed("offsets"):
            for number, file in sorted(log_files(self.directory / "offsets").items()):
                if number not in self.watermarks:
                    self._read(number, file)
        if self._changed("commits"):
            self.noted = max(log_files(self.directory / "commits"), default=-1)
        for known in (self.watermarks, self.ends, self.begun):
            for number in [each for each in known if each < self.noted - KEPT]:
                del known[number]

    @property
    def planned(self) -> int:
        """The last batch that is planned, -1 if none is."""
        return max(self.watermarks, default=-1)

    @property
    def in_flight(self) -> int | None:
        """The batch that is planned and not yet noted."""
        return self.planned if self.planned > self.noted else None

    @property
    def records(self) -> int:
        """How many records of the source are in noted batches."""
        return self.ends.get(self.noted, 0)

    @property
    def watermark_ms(self) -> int:
        """The watermark of the last noted batch: every window that ends there or before has been published."""
        return self.watermarks.get(self.noted, 0)

    def shown(self) -> list[dict[str, Any]]:
        """Return `batches` of the room's state."""
        return [self._shown(number) for number in sorted(self.watermarks)[-BATCHES_SHOWN:]]

    def forget(self) -> None:
        """Delete the directory."""
        shutil.rmtree(self.directory, ignore_errors=True)

    def _shown(self, number: int) -> dict[str, Any]:
        drivers = self.begun.get(number, [])
        state = "noted" if number <= self.noted else "running" if drivers else "planned"
        return {"number": number, "state": state, "driver": drivers[-1] if drivers else None, "runs": len(drivers)}

    def _changed(self, log: str) -> bool:
        with contextlib.suppress(OSError):
            changed = (self.directory / log).stat().st_mtime_ns
            if changed != self._seen.get(log):
                # The clock of a file system has ticks: within the present one the directory may change again.
                if time.time_ns() - changed > TICK_NS:
                    self._seen[log] = changed
                return True
        return False

    def _read(self, number: int, file: Path) -> None:
        try:
            plan = read_plan(file)
        except (OSError, ValueError):  # Spark is writing the file: look again
            self._seen.pop("offsets", None)
            return
        self.watermarks[number] = plan.watermark_ms or 0
        self.ends[number] = sum(plan.end.values())


SPEED = 5  # seconds of event time per second
NOON_MS = START_MS + 12 * 3_600_000
CLIENTS = 6  # few, so that a window has few results and each can be seen
FOR_EVER = 1 << 40


class RoomTraffic:
    """Sends accesses to `topic` while it is `on`; each passes through `watch` before it is sent."""

    def __init__(
        self,
        servers: str,
        topic: str,
        rate: float,
        on: bool,
        seed: int,
        watch: Callable[[Iterable[Access]], Iterable[Access]],
    ):
        self.rate, self.on = rate, on
        self._seed, self._watch = seed, watch
        self._speed = Speed()
        self.live = LiveTraffic((), servers, topic, 0, WINDOW_MS)
        self._begin()

    def set(self, *, rate: float | None = None, on: bool | None = None) -> None:
        """Change the rate, or switch the traffic on or off, at once."""
        same = rate is None or rate == self.rate
        self.rate = self.rate if rate is None else rate
        self.on = self.on if on is None else on
        if same:
            self.live.set_rate(self._wanted)
        else:
            self._begin()

    def shown(self) -> dict[str, object]:
        """Return `traffic` of the room's state."""
        sent = self.live.records
        return {"on": self.on, "rate": self.rate, "sent": sent, "per_second": self._speed.of(sent)}

    @property
    def _wanted(self) -> float:
        return self.rate if self.on else 0

    def _begin(self) -> None:
        """Continue from the latest event time that was sent, at the present rate."""
        if not self.rate:
            self.live.set_rate(0)
            return
        start = max(NOON_MS, self.live.last_time_ms)
        self._seed += 1
        accesses = Traffic(
            FOR_EVER, self._seed, CLIENTS, self.rate / SPEED, bursts=False, start_ms=start, disorder_ms=1_000
        )
        self.live.set_rate(self._wanted, self._watch(accesses))


class Speed:
    """How fast a number has grown over the last seconds."""

    def __init__(self, seconds: float = 3.0):
        self._seconds = seconds
        self._seen: deque[tuple[float, int]] = deque()

    def of(self, number: int) -> float:
        """Note the number as it is now, and return its growth per second."""
        now = time.monotonic()
        self._seen.append((now, number))
        while now - self._seen[0][0] > self._seconds:
            self._seen.popleft()
        since, first = self._seen[0]
        return max(0.0, round((number - first) / (now - since), 1)) if now > since else 0.0


SINKS = {
    staircase.NO_CHECKPOINT.name: "not-idempotent",
    staircase.CHECKPOINT.name: "not-idempotent",
    staircase.IDEMPOTENT.name: "at-least-once",
    staircase.TRANSACTIONS.name: "no-marker",
    staircase.EXACTLY_ONCE.name: "exactly-once",
}
STAGES = {stage.name: stage for stage in staircase.STAGES}
TRIGGER = 0.5  # seconds
TRANSACTION_TIMEOUT = 10.0  # seconds after which Kafka aborts the transaction of a frozen driver


class Act:
    """Act `number`, which plays `stage`. Raises KafkaUnreachable if no broker can create its topics."""

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
        self.watermark_ms = 0  # the highest of a noted batch whose rows have all been read from the log
        self._beginnings = 0  # how often an empty checkpoint has replaced another one
        self._named = 0  # the first offset whose epoch has not been looked at
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
        """Return the options for a driver that starts now."""
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
        """Use an empty checkpoint. The one before stays, since a driver may still write to it."""
        self._beginnings += 1
        self.checkpoint = self._new_checkpoint(self._beginnings)

    def hear(self, driver: Driver, event: Mapping[str, Any]) -> None:
        """Note a batch that a driver has begun."""
        if event["event"] == "begins":
            self.checkpoint.begun[event["batch"]].append(driver.number)

    def look(self, drivers: Mapping[int, Driver]) -> None:
        """Bring everything up to date. Raises OSError if the log cannot be read; it then stays as it was."""
        self.checkpoint.look()
        # Taken before the log is read, so that the log has all results of the windows that this watermark closes.
        noted = self.checkpoint.watermark_ms
        self.read_log(drivers)
        if self.log.current:
            self.watermark_ms = max(self.watermark_ms, noted)
        self.verdict.close(self.watermark_ms, {(row.window, row.ip) for row in self.log.undecided})  # type: ignore[misc]
        if self.has_marker:
            for row in self.markers.read():
                self.marker = row

    def read_log(self, drivers: Mapping[int, Driver]) -> None:
        """Read the new records of the log. Raises OSError."""
        rows = self.log.read(self.verdict.has)
        for row in rows:
            row.copy = False
            if self.verdict.has(row):
                self.log.count_copy(row)
            self.verdict.add([row])
        if drivers:  # `freeze_at` reads the log without drivers
            for row in [each for each in self.log.entries if each.offset >= self._named and each.epoch >= 0]:
                self._name_epoch(row, drivers)
            self._named = self.log.end

    def counted(self) -> dict[str, Any]:
        """Return `counted` of the room's state."""
        records = self.checkpoint.records
        behind = max(0, self.live.records - records)
        return {"records": records, "per_second": self._speed.of(records), "behind": behind}

    def close(self) -> None:
        """End the traffic, close the connections and delete the checkpoints. No driver may be left."""
        self.live.close()
        self.log.close()
        self.markers.close()
        for directory in self._equipment.directory.glob(f"checkpoint-{self.number}-*"):
            shutil.rmtree(directory, ignore_errors=True)

    def _name_epoch(self, row: Row, drivers: Mapping[int, Driver]) -> None:
        """Note the epoch of a row for the driver that began its batch last."""
        begun = None if row.batch is None else self.checkpoint.begun.get(row.batch)
        driver = drivers.get(begun[-1]) if begun else None
        if driver:
            driver.epoch = row.epoch

    def _new_checkpoint(self, beginning: int) -> WatchedCheckpoint:
        return WatchedCheckpoint(self._equipment.directory / f"checkpoint-{self.number}-{beginning}")
