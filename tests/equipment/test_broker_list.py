"""A client that has lost its brokers for good is replaced, and nothing is lost or doubled by that."""

from __future__ import annotations

import json
from collections import Counter
from functools import partial
from itertools import count

import pytest
from confluent_kafka import Producer
from kafka.errors import KafkaTimeoutError

from labs.equipment.broker_list import BrokerList
from labs.equipment.topics import create_topic
from labs.equipment.waiting import eventually
from labs.evidence.auditor.audit import audit
from labs.evidence.checkpoint.planned_results import read_source_records
from labs.evidence.readers import results
from labs.faults import proxy_server
from labs.faults.proxy import proxied_broker
from labs.pipeline.log import live_traffic
from labs.pipeline.records import CLOSING_IP
from tests.last_answer import OFTEN, LastAnswer

pytestmark = pytest.mark.long


@pytest.fixture
def servers(monkeypatch):
    """The address of a broker behind a proxy that can give a client its last answer."""
    monkeypatch.setattr(proxy_server, "ProxiedConnection", LastAnswer)
    monkeypatch.setattr(live_traffic, "source_producer", partial(live_traffic.source_producer, **OFTEN))
    monkeypatch.setattr(results, "_consumer", partial(results._consumer, **OFTEN))
    with proxied_broker() as (broker, _):
        yield broker.bootstrap_servers


def test_client_that_has_lost_its_brokers_says_so_and_never_goes_on(servers):
    create_topic(servers, "results", 1)
    acknowledged: list[object] = []
    brokers = BrokerList()
    producer = Producer({"bootstrap.servers": servers, **brokers.settings, **OFTEN, "log_level": 0})

    def send() -> list:
        producer.produce("results", b"a record", on_delivery=lambda error, _: acknowledged.append(error))
        producer.flush(1)
        return acknowledged

    eventually(send)
    assert not brokers.is_lost
    LastAnswer.strike_until(lambda: send() and brokers.is_lost)
    del acknowledged[:]
    with pytest.raises(TimeoutError):
        eventually(send, timeout=10)


def test_traffic_goes_on_with_a_new_producer_and_sends_every_access_once(servers):
    create_topic(servers, "source", 2)
    accesses = ((number // 4, f"192.0.2.{number % 2}") for number in count())  # each twice
    traffic = live_traffic.LiveTraffic(accesses, servers, "source", rate=2_000)

    def goes_on() -> None:
        sent = traffic.records
        eventually(lambda: traffic.acknowledged.total() > sent + 2_000)

    goes_on()
    for _ in range(2):
        before = traffic._producer
        LastAnswer.strike_until(lambda: traffic._producer is not before)  # noqa: B023
        goes_on()
    LastAnswer.strike()
    traffic.stop()
    assert traffic.sent.total() == traffic.records
    assert traffic.acknowledged == traffic.sent
    stored = [access for _, _, *access in read_source_records(servers, "source") if access[1] != CLOSING_IP]
    assert Counter(map(tuple, stored)) == traffic.sent


def test_traffic_whose_broker_does_not_answer_is_repaired_later(servers, monkeypatch):
    create_topic(servers, "source", 1)
    traffic = live_traffic.LiveTraffic(((number, "192.0.2.1") for number in count()), servers, "source", rate=2_000)
    eventually(lambda: traffic.acknowledged.total() > 2_000)
    read, asked = traffic._stored_last, []

    def silent_until_it_stops():
        asked.append(traffic._stopping.is_set())
        if asked.count(True) < 2:
            raise KafkaTimeoutError
        return read()

    monkeypatch.setattr(traffic, "_stored_last", silent_until_it_stops)
    LastAnswer.strike_until(lambda: asked)
    traffic.stop()
    assert asked.count(True) == 2
    assert traffic.acknowledged == traffic.sent
    assert traffic.sent.total() == traffic.records


def test_watcher_goes_on_with_a_new_consumer_and_sees_every_result_once(servers):
    create_topic(servers, "results", 1)
    watcher = results.Watcher(servers, "results")
    expected = {(0, f"192.0.2.{number}"): 1 for number in range(20)}
    for number, (window_start, ip) in enumerate(expected):
        if number == 10:
            eventually(lambda: len(watcher.distinct) == 10)
            before = watcher._consumer
            LastAnswer.strike_until(lambda: watcher._consumer is not before)  # noqa: B023
        producer = Producer({"bootstrap.servers": servers, "log_level": 0})
        producer.produce("results", json.dumps({"window_start": window_start, "ip": ip, "count": 1}))
        producer.flush()
    eventually(lambda: len(watcher.distinct) == 20)  # before it stops
    assert audit(expected, watcher.stop()).valid
