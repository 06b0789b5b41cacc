"""The moment of a kill: when a driver has rows of its batch in the log, or has committed them, and has not noted that.

The driver is frozen before the checkpoint is looked at again, so that a batch which was quicker is let go and the next
one waited for: what is then killed was at that moment for certain.
"""

from __future__ import annotations

import contextlib
import threading
import time

from labs.room.act import Act
from labs.room.drivers import Driver
from labs.room.possible import NotDone

STEP = 0.005  # seconds between two looks
PATIENCE = 30.0  # seconds


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
            act.checkpoint.look()
            if act.checkpoint.in_flight == batch:
                return
            driver.job.resume()
        lock.release()
        try:
            waiting.wait(STEP)
        finally:
            lock.acquire()
    raise NotDone(f"kill-driver: no batch had its {moment} in the log and was not noted within {PATIENCE:g} s")


def _read(act: Act) -> None:
    with contextlib.suppress(OSError):
        act.read_log({})


def _is_there(moment: str, act: Act, batch: int, end: int, ended: int) -> bool:
    if moment == "commit":
        return any(each.number > ended and each.batch == batch for each in act.log.ended)
    return any(row.offset >= end and row.kind == "row" and row.batch == batch for row in act.log.entries)
