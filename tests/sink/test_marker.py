"""The marker: what was committed is what is read, also when the only broker was killed right after the commit."""

from __future__ import annotations

import socket
from concurrent.futures import ThreadPoolExecutor

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer
from confluent_kafka.admin import AdminClient, ConfigResource, ResourceType

from exactly_once_kafka import marker_store as marker_module
from exactly_once_kafka import marker_topic
from exactly_once_kafka.deadline import Deadline
from exactly_once_kafka.marker_store import MarkerStore, Unreadable, value_of
from exactly_once_kafka.producer import PendingProducer
from exactly_once_kafka.producer_options import producer_settings
from exactly_once_kafka.protocol import Marker
from exactly_once_kafka.sink import WRITERS, ExactlyOnceKafkaSink
from labs.equipment.broker import Broker
from labs.equipment.topics import create_topic
from labs.equipment.waiting import eventually
from labs.evidence.readers.results import read_committed
from labs.faults.proxy import Request, proxied_broker
from tests.sink.conftest import numbers_in

ROUNDS = 3  # without the fencing in labs/equipment/node.py about one in six loses its commit; `make soak` has more


@pytest.mark.long
def test_commit_acknowledged_just_before_the_broker_is_killed_is_kept():
    with Broker() as broker:
        servers = broker.bootstrap_servers
        create_topic(servers, "results", 1)
        settings = producer_settings("sink", servers, {})
        store = MarkerStore("sink", "markers", servers, settings)
        store.topic.create(Deadline(30))
        for batch in range(ROUNDS):
            producer = PendingProducer(settings).take(Deadline(60))
            producer.begin_transaction()
            producer.produce("results", str(batch))
            store.send(Marker(batch, "query", "{}"), producer, Deadline(30))
            producer.commit_transaction(30)
            broker.kill()
            broker.start()
            PendingProducer(settings).take(Deadline(60))
            assert store.read(Deadline(30)) == Marker(batch, "query", "{}")
            assert numbers_in(servers, "results") == list(range(batch + 1))


def is_without_controller(servers: str) -> bool:
    return AdminClient({"bootstrap.servers": servers}).list_topics(timeout=10).controller_id == -1


@pytest.mark.long
def test_question_that_librdkafka_loses_since_kafka_knows_of_no_broker_is_asked_again():
    out_of_step = {"broker.session.timeout.ms": "1000", "broker.heartbeat.interval.ms": "3000"}  # often let in anew
    with Broker(settings=out_of_step) as broker:
        store = MarkerStore("sink", "markers", broker.bootstrap_servers, {})
        made = store.topic.create(Deadline(60))
        for _ in range(2):
            eventually(lambda: is_without_controller(broker.bootstrap_servers), timeout=60)
            store.topic.disconnect()  # who has known a controller need not look for it
            assert store.topic.id(Deadline(30)) == made


@pytest.mark.long
def test_topic_that_a_broker_has_not_heard_of_yet_is_waited_for(broker, topic, monkeypatch):
    store = MarkerStore("early", topic(cleanup_policy="compact"), broker.bootstrap_servers, {})
    describe, asked = AdminClient.describe_configs, []

    def describe_configs(client, resources, **options):
        asked.extend(resources)
        if len(asked) > 2:
            return describe(client, resources, **options)
        unheard = ConfigResource(ResourceType.TOPIC, "unheard-of")
        return {resources[0]: describe(client, [unheard], **options)[unheard]}

    monkeypatch.setattr(AdminClient, "describe_configs", describe_configs)
    assert store.topic.id(Deadline(30))
    assert len(asked) == 3


@pytest.mark.long
def test_leader_is_asked_for_the_end_before_what_it_shows_is_taken_for_all(monkeypatch):
    """One that has just become it may show less than was committed, but does not give an end then (KIP-207)."""
    with proxied_broker() as (broker, proxy), ThreadPoolExecutor(1) as beside:
        create_topic(broker.bootstrap_servers, "markers", 1, cleanup_policy="compact")
        store = MarkerStore("sink", "markers", broker.bootstrap_servers, {})
        assert store.read(Deadline(60)) is None  # from the beginning: the next one asks for no offset to begin with
        monkeypatch.setattr(marker_module, "LONG_SLICE", 60)
        asked = proxy.hold_next_request(Request.LIST_OFFSETS, cut_client=False)
        reading = beside.submit(store.read, Deadline(60))
        asked.wait(30)
        producer = PendingProducer(producer_settings("sink", broker.bootstrap_servers, {})).take(Deadline(60))
        store.overwrite(marker := Marker(0, "query", "{}"), producer, Deadline(30))
        assert not reading.done()
        asked.deliver()
        assert reading.result() == marker


@pytest.mark.long
def test_end_that_was_refused_is_asked_for_again_once_the_topic_may_be_read(broker, topic, monkeypatch):
    asked = []

    class RefusedOnce(Consumer):
        def get_watermark_offsets(self, *partition, **options):
            if not options["cached"]:
                asked.append(partition)
                if len(asked) == 1:
                    raise KafkaException(KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED))
            return super().get_watermark_offsets(*partition, **options)

    store = MarkerStore("sink", topic(cleanup_policy="compact"), broker.bootstrap_servers, {})
    mirror(broker.bootstrap_servers, store.topic.name, marker := Marker(0, "query", "{}"))
    monkeypatch.setattr(marker_module, "Consumer", RefusedOnce)
    monkeypatch.setattr(MarkerStore, "_is_refused", lambda *_: True)
    assert store.read(Deadline(60)) == marker
    assert len(asked) == 2


@pytest.mark.long
def test_marker_that_was_never_written_is_none(broker, topic):
    store = MarkerStore("nobody", topic(cleanup_policy="compact"), broker.bootstrap_servers, {})
    assert store.read(Deadline(30)) is None


def mirror(servers, markers, *values, key="sink"):
    """Write markers as a mirror without exactly-once does, or a backup that is restored: each is a plain record."""
    producer = Producer({"bootstrap.servers": servers})
    for value in values:
        producer.produce(markers, value if isinstance(value, bytes | None) else value_of(value), key=key)
    assert producer.flush(30) == 0


@pytest.mark.bench
@pytest.mark.parametrize("undecided", [False, True])
def test_newest_marker_counts_whatever_comes_behind_it(broker, topic, undecided):
    servers, markers = broker.bootstrap_servers, topic(cleanup_policy="compact")
    committed = [Marker(batch, "query", "{}") for batch in range(6)]
    store, other = MarkerStore("sink", markers, servers, {}), MarkerStore("other", markers, servers, {})
    producer = PendingProducer(producer_settings("sink", servers, {})).take(Deadline(60))

    def newest():
        fresh = MarkerStore("sink", markers, servers, {}).read(Deadline(30), undecided)
        assert fresh == store.read(Deadline(30), undecided)
        return fresh

    mirror(servers, markers, *committed[:2])  # two plain records: the last one has nothing behind it
    assert newest() == committed[1]
    mirror(servers, markers, committed[2])
    assert newest() == committed[2]
    store.overwrite(committed[3], producer, Deadline(30))  # with its commit
    mirror(servers, markers, committed[4])
    assert newest() == committed[4]
    mirror(servers, markers, committed[5], committed[0], key="other")
    mirror(servers, markers, committed[0], key=None)
    assert newest() == committed[4]
    store.overwrite(committed[5], producer, Deadline(30))
    assert newest() == committed[5]
    assert other.read(Deadline(30)) == committed[0]


@pytest.mark.bench
@pytest.mark.parametrize("value", [None, b"no JSON", b"[]"], ids=["tombstone", "no JSON", "another type"])
def test_newest_record_that_is_no_marker_is_no_older_marker_either(broker, topic, value):
    servers, markers = broker.bootstrap_servers, topic(cleanup_policy="compact")
    store, marker = MarkerStore("sink", markers, servers, {}), Marker(1, "query", "{}")
    mirror(servers, markers, marker, value)
    for _ in range(2):
        with pytest.raises(Unreadable, match=f"(?s)record 1 of the marker's topic '{markers}'.*before it: batch 1"):
            store.read(Deadline(30))
    mirror(servers, markers, value, key="other")
    mirror(servers, markers, marker)
    assert store.read(Deadline(30)) == marker


@pytest.mark.long
@pytest.mark.parametrize(
    ("writers", "driver_rows"), [("driver", 0), ("executors", 0), ("executors", 100)], ids=[*WRITERS, "small batch"]
)
@pytest.mark.parametrize("count", [1, 3])
@pytest.mark.parametrize("named_by_rows", [False, True], ids=["topic of the sink", "topic of the rows"])
def test_marker_is_written_behind_rows_that_go_to_its_own_partition(
    spark, broker, topic, publish_rows, writers, driver_rows, count, named_by_rows
):
    shared = topic(cleanup_policy="compact")
    options = {"marker_topic": shared, "writers": writers, "driver_rows": driver_rows}
    to = None if named_by_rows else shared
    sink = ExactlyOnceKafkaSink(f"of-{shared}", to, bootstrap_servers=broker.bootstrap_servers, **options)
    columns = ["string(id) as key", "string(id) as value", f"'{shared}' as topic"]
    publish_rows(sink, spark.range(count).selectExpr(*columns))
    *keys, last = [(m.key() or b"").decode() for m in read_committed(broker.bootstrap_servers, shared)]
    assert (sorted(keys), last) == ([*map(str, range(count))], sink.name)


@pytest.mark.long
def test_refusal_of_yesterday_is_none_of_today(broker, topic, monkeypatch):
    store = MarkerStore("sink", topic(cleanup_policy="compact"), broker.bootstrap_servers, {})
    for code in (KafkaError._AUTHENTICATION, KafkaError._ALL_BROKERS_DOWN):
        store._refusal.note(KafkaError(code))
    monkeypatch.setattr(marker_topic, "SLICE", 0.0)  # no answer comes in the first one
    assert store.topic.id(Deadline(30))


@pytest.mark.long
def test_error_of_an_idle_time_that_the_client_tells_of_later_is_none_of_today(broker, topic, monkeypatch):
    told = list[str]()

    class Late(Consumer):
        def poll(self, timeout=-1.0):
            if not told:
                return super().poll(timeout)
            told.clear()
            for code in (KafkaError._RESOLVE, KafkaError._ALL_BROKERS_DOWN):
                store._refusal.note(KafkaError(code))
            return None

    monkeypatch.setattr(marker_module, "Consumer", Late)
    store = MarkerStore("sink", topic(cleanup_policy="compact"), broker.bootstrap_servers, {})
    assert store.read(Deadline(30)) is None
    told.append("while the sink was idle")
    assert store.read(Deadline(30)) is None
    assert not told


def test_address_that_leads_nowhere_is_no_reason_to_give_up_while_there_is_another():
    nowhere = "no-such-host.invalid:9092"
    with socket.create_server(("127.0.0.1", 0)) as slow:  # takes the connection, and says nothing
        other = f"127.0.0.1:{slow.getsockname()[1]}"
        with pytest.raises(TimeoutError, match="gave no answer about topic 'any-marker' for"):
            MarkerStore("any", "any-marker", f"{nowhere},{other}", {}).topic.id(Deadline(2))
    with pytest.raises(KafkaException, match="Failed to resolve 'no-such-host"):
        MarkerStore("any", "any-marker", nowhere, {}).topic.id(Deadline(60))
