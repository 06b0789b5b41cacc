"""The marker: what was committed is what is read, also when the only broker was killed right after the commit."""

from __future__ import annotations

from labs.equipment import Broker, create_topic
from labs.evidence.reader import read_to_end
from labs.pipeline.marker import Marker, MarkerStore
from labs.pipeline.transactional_producer import Fresh, producer_settings

ROUNDS = 5  # without the fencing in labs/equipment/node.py about one round in six loses its commit


def test_commit_acknowledged_just_before_the_broker_is_killed_is_kept():
    with Broker() as broker:
        servers = broker.bootstrap_servers
        create_topic(servers, "results", 1)
        settings = producer_settings("sink", servers, {})
        store = MarkerStore("sink", "results", servers, settings)
        for batch in range(ROUNDS):
            producer = Fresh(settings).take(60)
            producer.begin_transaction()
            producer.produce("results", str(batch))
            store.send(Marker(batch, "query"), producer, 30)
            producer.commit_transaction(30)
            broker.kill()
            broker.start()
            Fresh(settings).take(60)
            assert store.read(timeout=30) == Marker(batch, "query")
            visible = [int(message.value()) for message in read_to_end(servers, "results", "read_committed")]
            assert visible == list(range(batch + 1))


def test_marker_that_was_never_written_is_none(broker, topic):
    assert MarkerStore("nobody", topic(), broker.bootstrap_servers, {}).read() is None
