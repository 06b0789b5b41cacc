"""A cluster of three brokers: with any one down the pipeline goes on; with two down it waits, and loses nothing."""

from __future__ import annotations

import pytest

from labs.equipment import Broker, create_topic, eventually
from labs.evidence.audit import audit
from labs.evidence.expected import count_by_window
from labs.evidence.reader import read_results
from labs.evidence.watcher import Watcher
from labs.faults.chaos import Journal
from labs.faults.chaos.driver_lane import DriverLane
from labs.pipeline.generate import Traffic
from labs.pipeline.live_traffic import LiveTraffic

RATE = 500  # records per second; event time runs five times as fast, so that a window is complete every second


@pytest.mark.timeout(400)
def test_any_one_down_the_pipeline_goes_on_and_two_down_it_waits_without_loss(tmp_path):
    with Broker(nodes=3) as cluster:
        servers = cluster.bootstrap_servers
        source, sink = create_topic(servers, "source", 1), create_topic(servers, "sink", 3)
        watcher = Watcher(servers, sink)
        traffic = LiveTraffic(Traffic(1 << 40, rate=RATE / 5, clients=20, disorder_ms=0), servers, source, RATE)
        options = {"bootstrap_servers": servers, "source_topic": source, "sink_topic": sink, "trigger": 0.5}
        options |= {"checkpoint": tmp_path / "checkpoint", "transaction_timeout_ms": 20_000}
        job = DriverLane((), 0, Journal(), options, 20, tmp_path / "job.log")  # restarts it, and strikes nothing
        job.start()

        def goes_on():
            before = len(watcher.arrivals)
            eventually(lambda: len(watcher.arrivals) > before + 40, timeout=90)

        try:
            goes_on()
            for node in range(3):
                cluster.kill(node)
                goes_on()
                cluster.start(node)
            cluster.kill(0)
            cluster.kill(1)
            acknowledged = traffic.acknowledged.total()
            eventually(lambda: traffic.records > acknowledged + 4 * RATE, timeout=60)
            assert traffic.acknowledged.total() < acknowledged + 3 * RATE  # one of three must not acknowledge alone
            cluster.start()
            goes_on()
            traffic.stop()
            expected = count_by_window(traffic.sent.elements())
            eventually(lambda: len(watcher.distinct) == len(expected), timeout=90)
        finally:
            job.stop()
            traffic.close()
        assert job.error is None
        verdict = audit(expected, watcher.stop(), second_reader=read_results(servers, sink))
        assert verdict.valid, verdict
        assert not traffic.indeterminate
