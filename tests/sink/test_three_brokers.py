"""A cluster of three brokers: with any one down the pipeline goes on; with two down it waits, and loses nothing."""

from __future__ import annotations

import pytest
from confluent_kafka.admin import AdminClient

from labs.equipment.broker import Broker
from labs.equipment.topics import create_topic
from labs.equipment.waiting import eventually
from labs.evidence.auditor.audit import audit
from labs.evidence.auditor.expected import count_by_window
from labs.evidence.readers.results import Watcher, read_results
from labs.faults.chaos_injectors import DriverInjector, Journal
from labs.pipeline.log.generate import Traffic
from labs.pipeline.log.live_traffic import LiveTraffic

pytestmark = pytest.mark.long

RATE = 500  # records per second; event time runs five times as fast, so that a window is complete every second


def in_sync(servers: str) -> bool:
    """Tell whether every partition has all of its replicas in sync."""
    topics = AdminClient({"bootstrap.servers": servers}).list_topics(timeout=10).topics.values()
    return all(set(p.isrs) == set(p.replicas) for topic in topics for p in topic.partitions.values())


@pytest.mark.soak
@pytest.mark.timeout(1800)
def test_any_one_down_the_pipeline_goes_on_and_two_down_it_waits_without_loss(tmp_path):
    with Broker(nodes=3) as cluster:
        servers = cluster.bootstrap_servers
        source, sink = create_topic(servers, "source", 1), create_topic(servers, "sink", 3)
        watcher = Watcher(servers, sink)
        traffic = LiveTraffic(Traffic(1 << 40, rate=RATE / 5, clients=20, disorder_ms=0), servers, source, RATE)
        options = {"bootstrap_servers": servers, "source_topic": source, "sink_topic": sink, "trigger": 0.5}
        options |= {"checkpoint": tmp_path / "checkpoint", "transaction_timeout_ms": 20_000}
        job = DriverInjector((), 0, Journal(), options, 20, tmp_path / "job.log")  # restarts it, and strikes nothing
        job.start()

        def goes_on():
            before = len(watcher.arrivals)
            eventually(lambda: len(watcher.arrivals) > before + 40, timeout=600)

        try:
            goes_on()
            for node in range(3):
                cluster.kill(node)
                goes_on()
                cluster.start(node)
            # With the third behind, all that a partition has in sync would be killed at once: see equipment/node.py.
            eventually(lambda: in_sync(servers), timeout=120)
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
