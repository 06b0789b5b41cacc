"""Waiting for the end of transactions: an open one is waited for, and its end is told by Kafka's name for it."""

from __future__ import annotations

import uuid

import pytest

from labs.equipment.topics import create_topic
from labs.evidence.readers.results import read_visible
from labs.evidence.readers.transactions import settle, wait_until_ended
from labs.pipeline.records import result_value
from labs.pipeline.two_phase.end_transaction import finish
from labs.pipeline.two_phase.prepared import PreparingProducer

pytestmark = pytest.mark.long


def test_an_open_transaction_is_waited_for_and_its_end_is_told(broker):
    servers, name = broker.bootstrap_servers, f"ends-{uuid.uuid4().hex[:8]}"
    topic = create_topic(servers, name, 1)
    with PreparingProducer(name, bootstrap_servers=servers) as producer:
        producer.send(topic, result_value(0, "192.0.2.1", 1))
        prepared = producer.prepare()
    with pytest.raises(TimeoutError):
        wait_until_ended(servers, name, timeout=1)
    finish(prepared, True, servers)
    settle(servers)  # as lessons call it; read_visible names the topic
    assert len(read_visible(servers, topic)) == 1
    assert wait_until_ended(servers, name).state == "CompleteCommit"
