"""The bench of a lesson that was interrupted, and is opened again from its top."""

from __future__ import annotations

import os

import pytest

from labs.desk.bench import open_bench
from labs.equipment.apart import Apart
from labs.equipment.broker import Broker
from tests.processes import runs

pytestmark = pytest.mark.long


def test_the_next_bench_ends_what_stands_on_the_last():
    interrupted = open_bench(spark=False)
    assert isinstance(interrupted.broker, Broker)
    nodes = (*interrupted.broker.nodes, *interrupted.open_broker({}).nodes)
    left = [interrupted.open_postgres().pid, Apart(os.getpid).result, *(node.pid for node in nodes)]
    assert all(map(runs, left))
    bench = open_bench(spark=False)
    try:
        assert not any(map(runs, left))
        assert bench.open_postgres().pid
    finally:
        bench.close()
