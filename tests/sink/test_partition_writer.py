"""A partition's writer does not wait for what is there already."""

from __future__ import annotations

import uuid

from exactly_once_kafka.batch import Marker
from exactly_once_kafka.executors.coordinator import Coordinator
from exactly_once_kafka.executors.encoding import Encoding
from exactly_once_kafka.patience import Patience


def test_an_answer_that_came_while_something_else_was_waited_for_is_taken_at_once(broker, topic):
    name, patience = uuid.uuid4().hex, Patience(60)
    connection = {"bootstrap_servers": broker.bootstrap_servers}
    coordinator = Coordinator(name, connection, Encoding(), topic(), 60_000)
    producer = coordinator.fence(patience)
    writer = coordinator.marking(coordinator.encoded(Marker(0, "query", "{}"), producer, 0), patience)
    assert writer.idle > 0
    while not writer._answers[0].is_done:
        coordinator.cluster.wait(writer.idle)
    assert writer.idle == 0
    assert not writer.done
    writer.step()
    assert writer.done
    coordinator.end(producer, False, patience)
