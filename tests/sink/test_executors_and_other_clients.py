"""What executors wrote is read alike by every client of Kafka, up to the largest record that a topic takes."""

from __future__ import annotations

from typing import NamedTuple

import pytest
from kafka import KafkaConsumer, TopicPartition
from pyspark.errors import StreamingQueryException

from exactly_once_kafka.kafka_client.record_batch import encode
from exactly_once_kafka.sink import ExactlyOnceKafkaSink
from labs.equipment.waiting import eventually
from labs.evidence.readers.results import position, read_committed
from labs.evidence.readers.transactions import wait_until_ended
from tests.sink.conftest import headers_of
from tests.sink.random_rows import NOW_MS, PRODUCER, Headers, Row, arrow, random_rows
from tests.sink.test_record_batch_in_kafka import each_of

pytestmark = pytest.mark.long

PARTITIONS = 3
SCHEMA = "key binary, value binary, headers array<struct<key: string, value: binary>>"
LARGEST = 1_048_588  # bytes of a record batch that a topic takes, unless max.message.bytes is set


class Record(NamedTuple):
    """A record as a client gave it."""

    partition: int
    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: Headers


def read_by_librdkafka(spark, servers, topic, count):
    return [
        Record(*position(m), m.timestamp()[1], m.key(), m.value(), headers_of(m))
        for m in read_committed(servers, topic)
    ]


def read_by_kafka_python(spark, servers, topic, count):
    settings = {"group_id": None, "auto_offset_reset": "earliest", "isolation_level": "read_committed"}
    consumer = KafkaConsumer(bootstrap_servers=servers, **settings)
    consumer.assign([TopicPartition(topic, partition) for partition in range(PARTITIONS)])
    polled = until(count, lambda: [r for each in consumer.poll(timeout_ms=100).values() for r in each])
    consumer.close()
    return [Record(r.partition, r.offset, r.timestamp, r.key, r.value, list(r.headers)) for r in polled]


def read_by_java(spark, servers, topic, count):
    jvm = spark._jvm
    clients, common = jvm.org.apache.kafka.clients.consumer, jvm.org.apache.kafka.common
    settings = jvm.java.util.HashMap()
    settings.put("bootstrap.servers", servers)
    settings.put("auto.offset.reset", "earliest")
    settings.put("isolation.level", "read_committed")
    as_bytes = common.serialization.ByteArrayDeserializer
    consumer = clients.KafkaConsumer(settings, as_bytes(), as_bytes())
    partitions = jvm.java.util.ArrayList()
    for partition in range(PARTITIONS):
        partitions.add(common.TopicPartition(topic, partition))
    consumer.assign(partitions)
    polled = until(count, lambda: list(each_of(consumer.poll(jvm.java.time.Duration.ofMillis(100)))))
    consumer.close()
    return [
        Record(
            r.partition(),
            r.offset(),
            r.timestamp(),
            r.key(),
            r.value(),
            [(header.key(), header.value()) for header in each_of(r.headers())],
        )
        for r in polled
    ]


def until(count, poll):
    """Return what `poll` gives, as soon as it is so much."""
    found = []

    def enough():
        found.extend(poll())
        return len(found) >= count

    eventually(enough, timeout=60)
    return found


@pytest.fixture
def sink_to(broker):
    """Make a sink whose executors write: `sink_to(topic, **options)`."""
    options = {"bootstrap_servers": broker.bootstrap_servers, "writers": "executors", "driver_rows": 0}
    return lambda topic, **more: ExactlyOnceKafkaSink(topic, topic, **(options | more))


@pytest.mark.parametrize("codec", ["none", "gzip"])
def test_java_librdkafka_and_kafka_python_read_the_same(spark, publish_rows, broker, topic, sink_to, codec):
    rows, into = random_rows(5, 200), topic(PARTITIONS)
    publish_rows(sink_to(into, compression_type=codec), spark.createDataFrame(rows, SCHEMA).repartition(2))
    where = spark, broker.bootstrap_servers, into, len(rows)
    by_java, by_librdkafka, by_kafka_python = (
        sorted(read(*where), key=lambda record: record[:2])
        for read in (read_by_java, read_by_librdkafka, read_by_kafka_python)
    )
    assert by_java == by_librdkafka == by_kafka_python
    own = [[h for h in r.headers if h[0] not in ("batch_id", "attempt", "batch_rows")] for r in by_java]
    found = [Row(record.key, record.value, headers) for record, headers in zip(by_java, own, strict=True)]
    assert sorted(found, key=repr) == sorted(rows, key=repr)
    assert {record.partition for record in by_java} == set(range(PARTITIONS))


@pytest.mark.parametrize(
    ("options", "ended"),
    [({"driver_rows": 0}, "CompleteAbort"), ({"driver_rows": 100}, "CompleteAbort"), ({"writers": "driver"}, "Empty")],
    ids=["by executors", "by the driver", "by librdkafka"],
)
def test_largest_row_that_a_topic_takes_is_published_and_one_byte_more_is_refused(
    spark, publish_rows, broker, topic, sink_to, options, ended
):
    overhead = len(encode(arrow([Row(value=bytes(10**6))]), PRODUCER, 0, NOW_MS)) - 10**6
    fits, too_large = (sink_to(topic(), batch_headers=False, **options) for _ in range(2))
    rows = spark.range(3, numPartitions=2)
    publish_rows(fits, rows.selectExpr(f"repeat('x', {LARGEST - overhead} * int(id = 1)) AS value"))
    values = [m.value() for m in read_committed(broker.bootstrap_servers, fits.topic)]
    assert None not in values
    lengths = [len(value or b"") for value in values]
    assert sorted(lengths) == [0, 0, LARGEST - overhead]
    with pytest.raises(StreamingQueryException, match="is larger than the topic's max"):
        publish_rows(too_large, rows.selectExpr(f"repeat('x', ({LARGEST - overhead} + 1) * int(id = 1)) AS value"))
    # Kafka itself would end it only after a minute.
    assert wait_until_ended(broker.bootstrap_servers, too_large.name, timeout=30).state == ended
    assert read_committed(broker.bootstrap_servers, too_large.topic) == []
