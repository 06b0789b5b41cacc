"""A kill that waits for its moment: what ends the wait. Nothing is started."""

from __future__ import annotations

import threading
from types import SimpleNamespace
from typing import Any

import pytest

from labs.faults.fault_points import TaskFaults
from labs.room.orders import freeze_at
from labs.room.session import NotDone


@pytest.mark.parametrize(
    ("gone", "other", "said"),
    [
        (False, True, "given up before its moment came, since another order was given"),
        (True, False, "driver 3 ended before its moment came"),
    ],
)
def test_a_kill_whose_moment_does_not_come_gives_way(gone, other, said, tmp_path):
    act: Any = SimpleNamespace(log=SimpleNamespace(end=0), read_log=lambda drivers: [])
    driver: Any = SimpleNamespace(number=3, gone=gone, job=SimpleNamespace(points=TaskFaults(str(tmp_path))))
    lock = threading.RLock()
    with lock, pytest.raises(NotDone, match=said):
        freeze_at("rows", driver, act, lock, lambda: other)
    assert list(tmp_path.iterdir()) == [], "nothing strikes later"
