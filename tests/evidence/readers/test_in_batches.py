from contextlib import closing

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from kafka import TopicPartition as Partition
from kafka.structs import OffsetAndMetadata

from labs.equipment.topics import admin
from labs.evidence.readers.kafka_tools import GroupUnknown, describe_group
from labs.evidence.readers.results import in_batches

pytestmark = pytest.mark.long


@pytest.fixture
def ten_records(broker, topic):
    name, producer = topic(), Producer({"bootstrap.servers": broker.bootstrap_servers})
    for number in range(10):
        producer.produce(name, str(number), partition=0)
    assert producer.flush(30) == 0
    return name


@pytest.fixture
def consumer(broker, ten_records):
    settings = {"bootstrap.servers": broker.bootstrap_servers, "group.id": ten_records, "enable.partition.eof": True}
    with closing(Consumer(settings)) as consumer:
        consumer.assign([TopicPartition(ten_records, 0, 0)])
        yield consumer


@pytest.mark.parametrize(("size", "lengths"), [(4, [4, 4, 2]), (5, [5, 5]), (20, [10])])
def test_every_record_comes_once_in_lists_of_that_size_and_a_shorter_last_one(consumer, size, lengths):
    batches = list(in_batches(consumer, size))
    assert [len(batch) for batch in batches] == lengths
    assert [message.offset() for batch in batches for message in batch] == list(range(10))


def test_who_waits_in_vain_is_told(consumer):
    consumer.unassign()
    with pytest.raises(TimeoutError, match=r"within 0\.1 s"):
        next(in_batches(consumer, 4, patience=0.1))


def test_lag_is_what_kafkas_own_tool_says(broker, ten_records):
    with admin(broker.bootstrap_servers) as kafka:
        kafka.alter_group_offsets(ten_records, {Partition(ten_records, 0): OffsetAndMetadata(7, "", None)})
    [row] = describe_group(broker.bootstrap_servers, ten_records).itertuples()
    assert row[1:] == (ten_records, 0, 7, 10, 3)


def test_group_that_never_committed_is_unknown(broker):
    with pytest.raises(GroupUnknown, match="'nobody-at-all'"):
        describe_group(broker.bootstrap_servers, "nobody-at-all")
