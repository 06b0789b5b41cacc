"""The query: what closing, late and malformed records do to the counts."""

from __future__ import annotations

import pytest
from confluent_kafka import Producer

from labs.evidence.readers.results import read_results, read_to_end
from labs.pipeline.log.generate import START_MS
from labs.pipeline.log.replay import close_windows, replay
from labs.pipeline.query import ip_count
from labs.pipeline.sinks.at_least_once import AtLeastOnceKafkaSink

pytestmark = pytest.mark.long


@pytest.fixture
def run(spark, broker, topic, tmp_path):
    """Run the query over a source topic to its end; the same checkpoint and results topic each time."""
    servers, checkpoint, results = broker.bootstrap_servers, str(tmp_path / "checkpoint"), topic()
    sink = AtLeastOnceKafkaSink(results, bootstrap_servers=servers)

    def run(source):
        query = ip_count.start_query(ip_count.count_ips(ip_count.read_source(spark, servers, source)), sink, checkpoint)
        query.awaitTermination()
        found = {(r.window_start - START_MS, r.ip): r.count for r in read_results(servers, results)}
        return query, found

    return run


def produce(broker, topic, *values: str) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers})
    for value in values:
        producer.produce(topic, value)
    producer.flush()


def test_window_comes_out_when_a_later_event_makes_it_final(run, broker, topic):
    source = topic()
    replay([(START_MS, "192.0.2.1"), (START_MS + 4999, "192.0.2.1")], broker.bootstrap_servers, source)
    assert run(source)[1] == {}
    replay([(START_MS + 10_000, "192.0.2.2")], broker.bootstrap_servers, source)
    assert run(source)[1] == {(0, "192.0.2.1"): 2}


def test_closing_records_close_every_window_and_are_never_counted(run, broker, topic):
    source = topic(partitions=3)
    replay([(START_MS + 4999, f"192.0.2.{n}") for n in range(6)], broker.bootstrap_servers, source)
    closed_at = close_windows(START_MS + 4999, broker.bootstrap_servers, source)
    expected = {(0, f"192.0.2.{n}"): 1 for n in range(6)}
    assert run(source)[1] == expected
    # A second closing makes the window final in which the first one's records lie.
    close_windows(closed_at + 5000, broker.bootstrap_servers, source)
    assert run(source)[1] == expected


def test_malformed_records_are_counted_and_can_be_selected(run, spark, broker, topic, tmp_path):
    source, side_channel = topic(), topic()
    malformed = ["", "nonsense", "12,", ",192.0.2.1", "999999999999999,192.0.2.1", "-5,192.0.2.1", "1,a,b", "1.5,x"]
    produce(broker, source, *malformed, f"{START_MS},192.0.2.1", f"{START_MS + 20_000},-")
    query, found = run(source)
    assert found == {(0, "192.0.2.1"): 1}
    observed = [p.observedMetrics["source"] for p in query.recentProgress]
    assert sum(row.records for row in observed) == len(malformed) + 2
    assert sum(row.malformed for row in observed) == len(malformed)

    sink = AtLeastOnceKafkaSink(side_channel, bootstrap_servers=broker.bootstrap_servers)
    records = ip_count.read_source(spark, broker.bootstrap_servers, source)
    ip_count.start_query(ip_count.rejected(records), sink, str(tmp_path / "aside")).awaitTermination()
    aside = {m.key(): m.value() for m in read_to_end(broker.bootstrap_servers, side_channel, "read_committed")}
    assert aside == {f"0:{offset}".encode(): value.encode() for offset, value in enumerate(malformed)}


def test_tombstone_is_malformed_and_no_crash(run, broker, topic):
    source = topic()
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers})
    producer.produce(source, key="k", value=None)
    producer.flush()
    query, found = run(source)
    assert found == {}
    assert sum(p.observedMetrics["source"].malformed for p in query.recentProgress) == 1


def test_more_partitions_than_cores_are_read_in_a_task_for_each_core(spark):
    cores = spark.sparkContext.defaultParallelism
    many, few = (spark.range(9).repartition(tasks) for tasks in (3 * cores, 1))
    assert ip_count.in_few_tasks(many).rdd.getNumPartitions() == cores
    assert ip_count.in_few_tasks(few).rdd.getNumPartitions() == 1
