import uuid

import pytest
from confluent_kafka import Producer
from kafka.admin import ConfigResource, ConfigResourceType

from labs.equipment import topics
from labs.equipment.topics import KafkaUnreachable, TopicRefused, admin, create_topic, end_offsets

NOBODY = "127.0.0.1:9"


@pytest.fixture
def impatient(monkeypatch):
    monkeypatch.setattr(topics, "PATIENCE_MS", 200)


def fresh() -> str:
    return f"test-{uuid.uuid4().hex}"


@pytest.mark.bench
def test_a_topic_can_be_used_as_soon_as_it_is_created(broker):
    name = create_topic(broker.bootstrap_servers, fresh(), partitions=3)
    assert end_offsets(broker.bootstrap_servers, name) == {0: 0, 1: 0, 2: 0}


@pytest.mark.bench
def test_a_topic_that_exists_is_left_as_it_is(broker, topic):
    name = topic(partitions=1)
    assert create_topic(broker.bootstrap_servers, name, partitions=5) == name
    assert end_offsets(broker.bootstrap_servers, name) == {0: 0}


@pytest.mark.bench
def test_settings_are_passed_on(broker, topic):
    name = topic(retention_ms="12345")
    with admin(broker.bootstrap_servers) as client:
        said = client.describe_configs([ConfigResource(ConfigResourceType.TOPIC, name, ["retention.ms"])])
    assert "12345" in str(said)


@pytest.mark.bench
def test_end_offsets_are_where_the_next_record_goes(broker, topic):
    name = topic(partitions=2)
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers})
    for partition in (0, 0, 1):
        producer.produce(name, b"record", partition=partition)
    assert producer.flush(30) == 0
    assert end_offsets(broker.bootstrap_servers, name) == {0: 2, 1: 1}


@pytest.mark.bench
def test_no_such_topic_has_no_end_offsets_and_is_not_created(broker):
    name = fresh()
    assert end_offsets(broker.bootstrap_servers, name) == {}
    with admin(broker.bootstrap_servers) as client:
        assert name not in client.list_topics()


@pytest.mark.bench
@pytest.mark.parametrize(
    ("name", "options", "reason"),
    [
        ("no spaces", {}, "contains one or more characters other than"),
        ("too-many-replicas", {"replication": 2}, "only 1 broker"),
        ("bad-setting", {"retention_ms": "soon"}, "Invalid value soon for configuration retention.ms"),
        ("no-partitions", {"partitions": 0}, "Number of partitions was set to an invalid"),
    ],
)
def test_a_refused_topic_names_the_reason(broker, name, options, reason):
    with pytest.raises(TopicRefused, match=rf"topic '{name}' was not created: .*{reason}"):
        create_topic(broker.bootstrap_servers, name, **options)


def test_an_address_where_nobody_answers_is_a_clear_message(impatient):
    clear = pytest.raises(KafkaUnreachable, match=f"no Kafka answers at {NOBODY}.*python -m labs broker")
    with clear:
        create_topic(NOBODY, "any")
    with clear:
        end_offsets(NOBODY, "any")
    with clear, admin(NOBODY):
        pass
