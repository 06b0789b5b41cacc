"""All that stands in a room, and how it is looked at: equipment, drivers, the act that is played, the chronicle.

It has no thread of its own, and does what it is told by `labs.room.orders`.
"""

from __future__ import annotations

import time
from typing import Any

import psutil

from labs.room.act import Act
from labs.room.chronicle import Chronicle
from labs.room.drivers import Drivers
from labs.room.equipment import RoomEquipment
from labs.room.network import RoomNetwork
from labs.room.possible import possible
from labs.room.state import STAGE_NAMES, State

LOOK_FOR_EXECUTORS = 2.0  # seconds: to look through all processes costs more than all else


class Session:
    """Starts the equipment and the first act; `close` ends all of it. Raises what keeps it from starting."""

    def __init__(self, stage: str, nodes: int, executors: int, rate: float, spare: bool, seed: int):
        self.began = time.monotonic()
        self.executors_wanted = executors
        self.executor_ids: frozenset[int] = frozenset()  # process ids
        self.over = False  # finished, and judged
        self.report: dict[str, Any] | None = None
        self.trouble = ""  # why the log cannot be read
        self._looked_for_executors = 0.0
        self._seed = seed
        self.equipment = RoomEquipment(nodes)
        try:
            self.network = RoomNetwork(self.equipment.proxy)
            self.chronicle = Chronicle(lambda: self.now)
            self.act = Act(self.equipment, 1, stage, rate, False, seed)
            environment = {"SPARK_MASTER": f"local-cluster[{executors},1,1024]"} if executors else {}
            self.drivers = Drivers(lambda: self.act.job_options(), lambda *told: self.act.hear(*told), environment)
            self.drivers.keep_spare(spare)
            self.drivers.start()
        except BaseException:
            self.close()
            raise

    @property
    def now(self) -> float:
        """Seconds since the room was opened."""
        return time.monotonic() - self.began

    def begin_act(self, stage: str) -> None:
        """End this act and begin the next, with the same traffic. Raises KafkaUnreachable."""
        old = self.act
        self.chronicle.end_act()
        self.drivers.stop()
        self.drivers.all.clear()
        old.close()
        self.network.mend()
        on = old.traffic.on and not self.over
        self.act = Act(self.equipment, old.number + 1, stage, old.traffic.rate, on, self._seed)
        self.over, self.report, self.trouble = False, None, ""
        self.drivers.start()

    def look(self) -> State:
        """Bring everything up to date and return the state, less its message."""
        self.drivers.look()
        try:
            self.act.look({driver.number: driver for driver in self.drivers.all})
            self.trouble = ""
        except OSError:
            self.trouble = self._blind()
        if time.monotonic() - self._looked_for_executors > LOOK_FOR_EXECUTORS:
            self._look_for_executors()
        self.chronicle.look()
        return self._state()

    def executors(self) -> list[psutil.Process]:
        """Return the executors that the room's drivers have started."""
        return [each for driver in self.drivers.living for each in driver.job.executors()]

    def close(self) -> None:
        """End all of it. What was never started is passed over."""
        if hasattr(self, "drivers"):
            self.drivers.close()
        if hasattr(self, "act"):
            self.act.close()
        self.equipment.close()

    def _look_for_executors(self) -> None:
        self._looked_for_executors = time.monotonic()
        if self.executors_wanted:
            self.executor_ids = frozenset(each.pid for each in self.executors())

    def _blind(self) -> str:
        down = [each for each in self.equipment.shown() if each["state"] != "running"]
        who = ", ".join(f"broker {each['number']} is {each['state']}" for each in down) or "no broker answers"
        return f"{who}: the log is shown as it was"

    def _state(self) -> State:
        act, log = self.act, self.act.log
        return {
            "time": round(self.now, 1),
            "stage": {"name": act.stage.name, "names": list(STAGE_NAMES), "act": act.number},
            "traffic": act.traffic.shown(),
            "counted": act.counted(),
            "batches": act.checkpoint.shown(),
            "drivers": self.drivers.shown(),
            "spare": self.drivers.spare_wanted,
            "brokers": self.equipment.shown(),
            "executors": {"wanted": self.executors_wanted, "running": len(self.executor_ids)},
            "network": self.network.shown(),
            "log": {"end": log.end, "stable": log.stable, "entries": [row.shown() for row in log.entries]},
            "marker": {"batch": act.marker.batch, "epoch": act.marker.epoch} if act.marker else None,
            "readers": {"committed": log.readable, "uncommitted": log.rows},
            "verdict": act.verdict.numbers(),
            "chronicle": self.chronicle.shown(),
            "possible": possible(self),
            "message": "",
            "report": self.report,
        }
