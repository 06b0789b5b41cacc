"""The moment of a kill: when a driver has rows of its batch in the log, or has committed them, and has not noted that.

The driver is frozen before checkpoint and log are looked at again, so that a batch which was quicker is let go and the
next one waited for: what is then killed was at that moment. Where it stops: a commit that was on its way when the
driver was frozen has a quarter of a second to show in the log.
"""

from __future__ import annotations

import contextlib
import threading
import time

from labs.room.act import Act
from labs.room.drivers import Driver
from labs.room.possible import NotDone

STEP = 0.005  # seconds between two looks
PATIENCE = 90.0  # seconds: on a busy machine many a batch is noted between two looks
UNDER_WAY = 0.25  # seconds that a frozen driver's last request takes at most


def freeze_at(moment: str, driver: Driver, act: Act, lock: threading.RLock) -> None:
    """Freeze the driver at its rows or its commit; `lock` is held, and let go between two looks. Raises NotDone."""
    waiting, deadline = threading.Event(), time.monotonic() + PATIENCE
    _read(act)
    end, ended = act.log.end, act.log.last_ended
    while time.monotonic() < deadline and not driver.gone:
        act.checkpoint.look()
        _read(act)
        batch = act.checkpoint.in_flight
        if batch is not None and _is_there(moment, act, batch, end, ended):
            driver.job.pause()
            _let_go(lock, waiting, UNDER_WAY)
            act.checkpoint.look()
            _read(act)
            too_late = moment == "rows" and _is_committed(act, batch, ended)
            if driver.gone:
                break
            if act.checkpoint.in_flight == batch and not too_late:
                return
            driver.job.resume()
        _let_go(lock, waiting, STEP)
    raise NotDone(f"kill-driver: no batch had its {moment} in the log and was not noted within {PATIENCE:g} s")


def _read(act: Act) -> None:
    with contextlib.suppress(OSError):
        act.read_log({})


def _is_there(moment: str, act: Act, batch: int, end: int, ended: int) -> bool:
    if moment == "commit":
        return _is_committed(act, batch, ended)
    return any(row.offset >= end and row.kind == "row" and row.batch == batch for row in act.log.entries)


def _is_committed(act: Act, batch: int, ended: int) -> bool:
    return any(each.number > ended and each.batch == batch for each in act.log.ended)


def _let_go(lock: threading.RLock, waiting: threading.Event, seconds: float) -> None:
    lock.release()
    try:
        waiting.wait(seconds)
    finally:
        lock.acquire()
