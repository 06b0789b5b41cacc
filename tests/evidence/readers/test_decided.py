"""Nothing is judged before it is decided: what lies committed behind an open transaction is seen a moment later."""

from __future__ import annotations

import json
import uuid
from concurrent.futures import ThreadPoolExecutor
from concurrent.futures import TimeoutError as StillWaiting

import pytest
from confluent_kafka import KafkaException, Producer

from labs.equipment.topics import create_topic
from labs.evidence.auditor.audit import Anomaly, Verdict, audit
from labs.evidence.readers.results import Watcher, read_results, read_visible, wait_until_decided
from labs.faults.kafka_messages import Request
from labs.faults.proxy import proxied_broker
from labs.runs import chaos

pytestmark = pytest.mark.bench

EXPECTED = {(0, f"10.0.0.{n}"): 1 for n in range(5)}


def publish(producer: Producer, topic: str) -> None:
    for window_start, ip in EXPECTED:
        producer.produce(topic, json.dumps({"window_start": window_start, "ip": ip, "count": 1}), partition=0)
    producer.flush()


@pytest.fixture
def doubled(broker, topic):
    """A topic with 5 results, then an open transaction, and behind it the same 5 again, which are committed.

    Returns the name of the topic and the producer whose transaction is open.
    """
    name = topic(partitions=2)

    def producer() -> Producer:
        settings = {"bootstrap.servers": broker.bootstrap_servers, "transactional.id": uuid.uuid4().hex}
        made = Producer({**settings, "linger.ms": 0, "log_level": 0})
        made.init_transactions()
        made.begin_transaction()
        return made

    publish(plain := Producer({"bootstrap.servers": broker.bootstrap_servers}), name)
    frozen = producer()
    frozen.produce(name, b"half a batch", partition=0)
    frozen.flush()
    publish(plain, name)
    yield name, frozen
    frozen.abort_transaction()


def at_once(doubled, judge):
    """Start to judge, let the open transaction end as soon as it is waited for, and return the judgement."""
    _, frozen = doubled
    with ThreadPoolExecutor() as pool:
        judged = pool.submit(judge)
        try:
            with pytest.raises(StillWaiting):
                judged.result(timeout=0.4)
        finally:
            frozen.abort_transaction()
            frozen.begin_transaction()
        return judged.result(timeout=30)


def test_audit_waits_for_an_open_transaction_and_finds_what_was_doubled_behind_it(broker, doubled):
    servers, (name, _) = broker.bootstrap_servers, doubled
    assert audit(EXPECTED, read_visible(servers, name)).valid  # as whoever does not wait would say
    judged = at_once(doubled, lambda: audit(EXPECTED, read_results(servers, name)))
    assert (judged.verdict, judged.duplicated) == (Verdict.INVALID, 5)


def test_chaos_waits_before_either_of_its_readers_is_judged(broker, doubled):
    servers, (name, _) = broker.bootstrap_servers, doubled
    watcher = Watcher(servers, name)

    def judge():
        sentinels, watched, came_later = chaos.read_all(servers, watcher, 30, name)
        return sentinels, audit(EXPECTED, watched, second_reader=came_later, sentinels=sentinels)

    sentinels, judged = at_once(doubled, judge)
    assert sentinels == {0: True, 1: True}
    assert dict(judged.counts) == {Anomaly.DUPLICATE: 5}


def test_transaction_that_hangs_makes_every_audit_invalid(broker, doubled):
    servers, (name, _) = broker.bootstrap_servers, doubled
    watcher = Watcher(servers, name)
    hanging = audit(EXPECTED, read_results(servers, name, patience=0.1))
    assert dict(hanging.counts) == {Anomaly.HANGING_TRANSACTION: 1}
    sentinels, watched, came_later = chaos.read_all(servers, watcher, 0.1, name)
    assert sentinels == {0: False, 1: True}
    for evidence in (watched, came_later):
        assert audit(EXPECTED, evidence).counts[Anomaly.HANGING_TRANSACTION] == 1
    assert audit(EXPECTED, list(watched), second_reader=came_later).verdict is Verdict.INVALID


@pytest.mark.parametrize("undecided", [dict, lambda: 1 / 0])
def test_watcher_that_does_not_come_to_its_end_leaves_no_consumer_open(broker, doubled, monkeypatch, undecided):
    monkeypatch.setattr("labs.evidence.readers.results.wait_until_decided", lambda *_: undecided())
    watcher = Watcher(broker.bootstrap_servers, doubled[0])
    with pytest.raises((TimeoutError, ZeroDivisionError)):
        watcher.stop(timeout=0)
    assert not watcher._thread.is_alive()
    with pytest.raises(RuntimeError, match="closed"):
        watcher._consumer.assignment()


def test_watcher_whose_answer_the_network_has_lost_reaches_its_end():
    with proxied_broker() as (broker, proxy):
        create_topic(broker.bootstrap_servers, "results", 1)
        watcher = Watcher(broker.bootstrap_servers, "results")
        proxy.drop_next_response(Request.FETCH, cut=False).wait()
        publish(Producer({"bootstrap.servers": broker.bootstrap_servers}), "results")
        watched = watcher.stop(timeout=40)  # by default a consumer would wait for a minute
    assert audit(EXPECTED, watched).valid


def test_empty_topic_is_decided_at_once(broker, topic):
    assert wait_until_decided(broker.bootstrap_servers, topic(partitions=2), patience=0) == {0: True, 1: True}


def test_unknown_topic_is_an_error_and_not_decided(broker):
    with pytest.raises(KafkaException, match="Unknown topic"):
        wait_until_decided(broker.bootstrap_servers, "nowhere")
