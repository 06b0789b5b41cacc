"""The marker: what was committed is what is read, also when the only broker was killed right after the commit."""

from __future__ import annotations

import pytest
from confluent_kafka.admin import AdminClient, ConfigResource, ResourceType

from exactly_once_kafka.batch import Marker
from exactly_once_kafka.marker import MarkerStore
from exactly_once_kafka.options import producer_settings
from exactly_once_kafka.patience import Patience
from exactly_once_kafka.producer import PendingProducer
from exactly_once_kafka.sink import WRITERS
from labs.equipment.broker import Broker
from labs.equipment.topics import create_topic
from labs.evidence.readers.results import read_committed

ROUNDS = 3  # without the fencing in labs/equipment/node.py about one in six loses its commit; `make soak` has more


def test_commit_acknowledged_just_before_the_broker_is_killed_is_kept():
    with Broker() as broker:
        servers = broker.bootstrap_servers
        create_topic(servers, "results", 1)
        settings = producer_settings("sink", servers, {})
        store = MarkerStore("sink", "markers", servers, settings)
        store.topic.create(Patience(30))
        for batch in range(ROUNDS):
            producer = PendingProducer(settings).take(Patience(60))
            producer.begin_transaction()
            producer.produce("results", str(batch))
            store.send(Marker(batch, "query", "{}"), producer, Patience(30))
            producer.commit_transaction(30)
            broker.kill()
            broker.start()
            PendingProducer(settings).take(Patience(60))
            assert store.read(Patience(30)) == Marker(batch, "query", "{}")
            visible = [int(message.value()) for message in read_committed(servers, "results")]
            assert visible == list(range(batch + 1))


def test_topic_that_a_broker_has_not_heard_of_yet_is_waited_for(broker, topic, monkeypatch):
    store = MarkerStore("early", topic(cleanup_policy="compact"), broker.bootstrap_servers, {})
    describe, asked = AdminClient.describe_configs, []

    def describe_configs(client, resources):
        asked.extend(resources)
        if len(asked) > 2:
            return describe(client, resources)
        unheard = ConfigResource(ResourceType.TOPIC, "unheard-of")
        return {resources[0]: describe(client, [unheard])[unheard]}

    monkeypatch.setattr(AdminClient, "describe_configs", describe_configs)
    assert store.topic.id(Patience(30))
    assert len(asked) == 3


def test_marker_that_was_never_written_is_none(broker, topic):
    store = MarkerStore("nobody", topic(cleanup_policy="compact"), broker.bootstrap_servers, {})
    assert store.read(Patience(30)) is None


@pytest.mark.parametrize("writers", WRITERS)
@pytest.mark.parametrize("count", [1, 3])
def test_marker_is_written_behind_rows_that_go_to_its_own_partition(
    spark, broker, topic, sink_for, publish_rows, writers, count
):
    shared = topic(cleanup_policy="compact")
    sink = sink_for(to=shared, marker_topic=shared, writers=writers, driver_rows=0)
    publish_rows(sink, spark.range(count).selectExpr("string(id) as key", "string(id) as value"))
    keys = [m.key().decode() for m in read_committed(broker.bootstrap_servers, shared)]
    assert sorted(keys) == [*map(str, range(count)), sink.name]
