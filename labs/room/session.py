"""A session of the room: the equipment, the drivers, the act that is played, and the chronicle; and how a session ends.

A session has no thread of its own: the room's threads call it.

At its end everything that was struck is mended, the pipeline finishes its work, and the auditor judges. The auditor
reads the topics again from the beginning and compares them with what was sent, so its verdict does not depend on what
the room has seen. Limitations: if the pipeline does not finish (its sink refuses, or no batch completes), the verdict
is unknown, and no missing result is called lost.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable
from typing import Any

import psutil

from labs.evidence.auditor.anomalies import Anomaly
from labs.evidence.auditor.audit import Audit
from labs.evidence.readers.results import Watcher
from labs.pipeline.records import LATENESS_MS, window_start
from labs.room.act import TRANSACTION_TIMEOUT, Act
from labs.room.chronicle import Chronicle
from labs.room.drivers import Drivers
from labs.room.equipment import RoomEquipment, RoomNetwork
from labs.room.state import STAGE_NAMES, State
from labs.runs.chaos import LOOK_FOR_TIMEOUTS, judge

LOOK_FOR_EXECUTORS = 2.0  # seconds between looks for executors: looking through all processes is slow


class NotDone(Exception):
    """An order could not be carried out after all; the message says why."""


class Session:
    """Starts the equipment and the first act; `close` ends both. Raises BrokerError, OSError."""

    def __init__(self, stage: str, nodes: int, executors: int, rate: float, spare: bool, seed: int):
        self.began = time.monotonic()
        self.executors_wanted = executors
        self.executor_ids: frozenset[int] = frozenset()  # process ids
        self.over = False  # finished, and judged
        self.report: dict[str, Any] | None = None
        self.trouble = ""  # why the log cannot be read
        self._looked_for_executors = 0.0
        self._seed, self._acts = seed, 1
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
        """End this act and begin the next, with the same traffic. If that raises KafkaUnreachable, this one goes on."""
        old, on = self.act, self.act.traffic.on and not self.over
        self.network.mend()
        self._acts += 1  # also of one that cannot begin: some of its topics may be there
        new = Act(self.equipment, self._acts, stage, old.traffic.rate, False, self._seed)
        self.chronicle.end_act()
        self.drivers.stop()
        self.drivers.all.clear()
        old.close()
        self.act, self.over, self.report, self.trouble = new, False, None, ""
        new.traffic.set(on=on)
        self.drivers.start()

    def look(self) -> State:
        """Bring everything up to date and return the state, without `possible` and `message`."""
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
        """End everything that was started."""
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

    def _waiting(self) -> str:
        """Return what the results that are awaited wait for, or "" while a driver works."""
        down = [each for each in self.equipment.shown() if each["state"] != "running"]
        if down:
            return f"broker {down[0]['number']} is {down[0]['state']}"
        if self.network.is_cut:
            return "the network is cut"
        return "" if self.over else self.drivers.waiting()

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
            "log": log.shown(),
            "marker": {"batch": act.marker.batch, "epoch": act.marker.epoch} if act.marker else None,
            "readers": {"committed": log.readable, "uncommitted": log.rows},
            "verdict": act.verdict.numbers(),
            "evidence": act.verdict.evidence(),
            "waiting": self._waiting(),
            "chronicle": self.chronicle.shown(),
            "report": self.report,
        }


BROKERS = 90.0  # seconds for all brokers to be there
WITHOUT_NEWS = 60.0  # seconds without a noted batch, after which the session waits no longer
QUIET = 5.0  # seconds for the last batch, which has nothing to write
GIVEN_UP = TRANSACTION_TIMEOUT + LOOK_FOR_TIMEOUTS  # seconds until Kafka has aborted an abandoned transaction
STEP = 0.05

Check = Callable[[], object]


class Ending:
    """Ends the session's act and judges it. It tells `say` what it waits for, and stops when `closing` is set."""

    def __init__(self, session: Session, lock: threading.RLock, closing: threading.Event, say: Callable[[str], object]):
        self._session, self._lock, self._closing, self._say = session, lock, closing, say

    def judge(self) -> Audit:
        """Return the auditor's verdict, and put it in the session's report. Raises NotDone."""
        self._mend()
        act = self._session.act
        self._say("finish: the traffic is stopped, and the last windows are closed")
        with self._lock:
            act.traffic.on = False
        act.live.stop()
        error = self._drain()
        with self._lock:
            self._session.chronicle.look()
            self._session.chronicle.end_act()
            self._session.drivers.stop()
        self._wait(lambda: act.log.current and not act.log.undecided, GIVEN_UP)
        self._say("finish: the auditor reads the topics")
        audit = self._audit(error)
        with self._lock:
            act.markers.close()
            self._session.over, self._session.report = True, _report(audit)
            self._session.chronicle.note("finish", "the traffic was stopped, and the auditor asked", str(audit.verdict))
        self._say("")
        return audit

    def _mend(self) -> None:
        equipment, session = self._session.equipment, self._session
        self._say("finish: brokers, drivers and network are repaired first")
        with self._lock:
            session.network.mend()
            for node in range(equipment.nodes):
                if equipment.state(node) == "frozen":
                    equipment.wake(node)
                elif equipment.state(node) == "killed":
                    equipment.start(node)
            for driver in session.drivers.living:
                if driver.state == "frozen":
                    driver.wake()
        if not self._wait(lambda: equipment.all_are("running") or equipment.trouble, BROKERS) or equipment.trouble:
            raise NotDone(f"finish: not every broker is running. {equipment.trouble}")

    def _drain(self) -> Exception | None:
        """Wait until every window is published or lost; return the error that ended the wait, if one did."""
        act, drivers = self._session.act, self._session.drivers
        last_window_ends = window_start(act.live.last_time_ms) + LATENESS_MS
        noted, since = -1, time.monotonic()
        while not (act.verdict.awaited == 0 and act.watermark_ms >= last_window_ends):
            self._say(f"finish: {act.verdict.awaited} results are awaited")
            if drivers.stuck:
                return RuntimeError(drivers.stuck)
            if act.checkpoint.noted != noted:
                noted, since = act.checkpoint.noted, time.monotonic()
            elif time.monotonic() - since > WITHOUT_NEWS:
                return TimeoutError(f"no batch reached the checkpoint for {WITHOUT_NEWS:g} s")
            self._wait(lambda: False, STEP)
        self._wait(lambda: act.checkpoint.in_flight is None, QUIET)
        return None

    def _audit(self, error: Exception | None) -> Audit:
        act, servers = self._session.act, self._session.equipment.broker.bootstrap_servers
        watcher = Watcher(servers, act.sink)
        audit, *_ = judge(servers, watcher, act.live, act.live.sent, GIVEN_UP, error, act.sink, act.source)
        return audit

    def _wait(self, check: Check, seconds: float) -> bool:
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            with contextlib.suppress(OSError):
                if check():
                    return True
            if self._closing.wait(STEP):
                raise NotDone("finish: the room is being closed")
        return bool(check())


def _report(audit: Audit) -> dict[str, Any]:
    numbers = {name: getattr(audit, name) for name in ("expected", "delivered", "lost", "duplicated", "conflicting")}
    return {"verdict": str(audit.verdict), **numbers, "torn": audit.counts[Anomaly.TORN_BATCH], "why": audit.why}
