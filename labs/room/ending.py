"""The end of a session: mend everything, let the pipeline finish its work, and hand it to the auditor.

The auditor reads the topics anew and compares them with what was sent: its word does not depend on what the room has
seen. Where it stops: a pipeline that does not come to its end (refused, or stuck) is judged unknown, and
nothing that is missing is called lost.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable
from typing import Any

from labs.evidence.auditor.anomaly import Anomaly
from labs.evidence.auditor.audit import Audit
from labs.evidence.readers.watcher import Watcher
from labs.pipeline.records import LATENESS_MS, window_start
from labs.room.act import TRANSACTION_TIMEOUT
from labs.room.possible import NotDone
from labs.room.session import Session
from labs.runs.chaos_audit import LOOK_FOR_TIMEOUTS, judge

BROKERS = 90.0  # seconds for all brokers to be there
WITHOUT_NEWS = 60.0  # seconds without a noted batch until the rest is given up
QUIET = 5.0  # seconds for the last batch, which has nothing to write
GIVEN_UP = TRANSACTION_TIMEOUT + LOOK_FOR_TIMEOUTS  # seconds until a transaction that nobody ends is aborted
STEP = 0.05

Check = Callable[[], object]


class Ending:
    """Ends the session's act and judges it; what it waits for is told to `say`, and it ends when `closing` is set."""

    def __init__(self, session: Session, lock: threading.RLock, closing: threading.Event, say: Callable[[str], object]):
        self._session, self._lock, self._closing, self._say = session, lock, closing, say

    def judge(self) -> Audit:
        """Return the auditor's word, which is in the session's report too. Raises NotDone."""
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
        self._say("finish: what was struck is mended first")
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
            raise NotDone(f"finish: not every broker is there. {equipment.trouble}")

    def _drain(self) -> Exception | None:
        """Wait until every window is published or lost; return why it was given up."""
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
                return TimeoutError(f"no batch was noted for {WITHOUT_NEWS:g} s")
            self._wait(lambda: False, STEP)
        self._wait(lambda: act.checkpoint.in_flight is None, QUIET)
        return None

    def _audit(self, error: Exception | None) -> Audit:
        act, servers = self._session.act, self._session.equipment.broker.bootstrap_servers
        watcher = Watcher(servers, act.sink)
        audit, *_ = judge(servers, watcher, act.live, act.verdict.expected, GIVEN_UP, error, act.sink, act.source)
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
    return {"verdict": str(audit.verdict), **numbers, "torn": audit.counts[Anomaly.TORN_BATCH], "summary": str(audit)}
