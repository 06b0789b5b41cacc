"""The bench of a lesson that was interrupted, and is opened again from its top."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from labs.desk.bench import open_bench
from labs.equipment.apart import Apart
from labs.equipment.broker import Broker
from tests.processes import runs

pytestmark = pytest.mark.long

# Ctrl-C while the bench is closed, in the middle of the end of Spark's context.
INTERRUPTED = """
import signal
from labs.desk.bench import open_bench

bench = open_bench()
server = bench.spark.sparkContext._accumulatorServer

def interrupt():
    del server.shutdown  # once
    signal.raise_signal(signal.SIGINT)

server.shutdown = interrupt
try:
    bench.close()
except KeyboardInterrupt:
    bench = open_bench()
    print(bench.spark.range(3).count())
    bench.close()
"""


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


def test_a_bench_whose_end_was_interrupted_is_not_in_the_way_of_the_next_one():
    ran = subprocess.run([sys.executable, "-c", INTERRUPTED], capture_output=True, text=True)
    assert ran.stdout.split() == ["3"], ran.stderr
