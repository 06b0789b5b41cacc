"""Traffic that can be stopped at any moment, and says why it has stopped by itself."""

from __future__ import annotations

import threading
from itertools import repeat

import pytest

from labs.equipment.waiting import eventually
from labs.pipeline.log.live_traffic import LiveTraffic
from labs.pipeline.log.replay import SourceFailed

NOWHERE = "127.0.0.1:1"
ACCESS = (1_767_225_600_000, "192.0.2.1")


def test_traffic_whose_queue_is_full_can_be_closed():
    traffic = LiveTraffic(repeat(ACCESS), NOWHERE, "source", rate=1e7)
    eventually(lambda: traffic.records >= 100_000, timeout=60)  # librdkafka's queue
    closing = threading.Thread(target=traffic.close, daemon=True)
    closing.start()
    closing.join(10)
    assert not closing.is_alive()


def test_traffic_that_runs_out_of_accesses_says_so():
    traffic = LiveTraffic(repeat(ACCESS, 2), NOWHERE, "source", rate=1e6)
    eventually(lambda: not traffic._thread.is_alive(), timeout=10)
    with pytest.raises(SourceFailed, match="stopped by itself: there are no more accesses to send"):
        traffic.stop(0)
