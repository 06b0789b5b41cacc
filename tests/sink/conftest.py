"""What the tests of the exactly-once sink share: queries to run through it, and what they must publish."""

from __future__ import annotations

from typing import Any, cast

import pytest
from confluent_kafka import Message, Producer

from exactly_once_kafka.executors.transport import ExecutorsTransport
from exactly_once_kafka.sink import ExactlyOnceKafkaSink
from labs.equipment.topics import create_topic
from labs.evidence.auditor.audit import audit
from labs.evidence.readers.results import Headers, read_committed, read_results
from labs.faults.fault_points import FaultPoints
from labs.pipeline.query import ip_count
from tests.conftest import RECORDS_PER_BATCH


def wrote(sink: ExactlyOnceKafkaSink, writers: str) -> bool:
    """Tell whether those wrote that were to: where executors turn out to lack something, the driver does."""
    transport = sink.transport
    if isinstance(transport, ExecutorsTransport):
        return writers == "executors" and transport.next_batch.executors_can
    return writers == "driver"


def numbers_in(servers: str, topic: str) -> list[int]:
    """Return the numbers that a topic's committed records hold."""
    return [int(m.value() or b"") for m in read_committed(servers, topic)]


def headers_of(message: Message) -> Headers:
    return cast(Headers, message.headers() or [])


@pytest.fixture
def calls_of(monkeypatch):
    """Note the calls of a method, which does what it did: `calls_of(Cluster, "send") -> the arguments of each`."""

    def calls_of(owner: type, name: str) -> list[tuple[Any, ...]]:
        calls, real = list[tuple[Any, ...]](), getattr(owner, name)

        def noted(*given):
            calls.append(given)
            return real(*given)

        monkeypatch.setattr(owner, name, noted)
        return calls

    return calls_of


@pytest.fixture
def points():
    """The fault points of the test's sinks."""
    return FaultPoints()


@pytest.fixture
def sink_for(broker, topic, points):
    """Make a sink of the given class for a topic (default: a fresh one) and of the topic's name; the driver writes."""

    def sink_for(kind=ExactlyOnceKafkaSink, to=None, **options):
        to = to or topic()
        options = {"bootstrap_servers": broker.bootstrap_servers, "writers": "driver", "points": points} | options
        return kind(f"sink-of-{to}", to, **options)

    return sink_for


@pytest.fixture
def run(spark, broker, classroom_log, tmp_path):
    """Run the IP count through a sink until the source's end, from the test's checkpoint."""

    def run(sink, checkpoint=tmp_path / "checkpoint", **trigger):
        records = ip_count.read_source(
            spark, broker.bootstrap_servers, classroom_log.topic, records_per_batch=RECORDS_PER_BATCH
        )
        query = ip_count.start_query(ip_count.count_ips(records), sink, checkpoint, **trigger)
        query.awaitTermination()
        return query

    return run


@pytest.fixture
def audited(broker, classroom_log):
    return lambda sink: audit(classroom_log.expected, read_results(broker.bootstrap_servers, sink.topic))


def topic_of_numbers(servers: str, name: str) -> str:
    """Make a source topic with the numbers from 0 to 29, and return its name."""
    topic = create_topic(servers, name, partitions=1)
    producer = Producer({"bootstrap.servers": servers})
    for number in range(30):
        producer.produce(topic, str(number))
    assert producer.flush(30) == 0
    return topic


@pytest.fixture(scope="session")
def numbers(broker) -> str:
    return topic_of_numbers(broker.bootstrap_servers, "numbers")


class Copying:
    """Copies the numbers through a sink, ten in a batch, from a checkpoint; and looks at what is there."""

    def __init__(self, spark, servers, source, checkpoint):
        self._spark, self.servers, self._source, self.checkpoint = spark, servers, source, checkpoint

    def __call__(self, sink, records_per_batch=10):
        records = ip_count.read_source(self._spark, self.servers, self._source, records_per_batch=records_per_batch)
        ip_count.start_query(records.selectExpr("value"), sink, self.checkpoint).awaitTermination()

    def published(self, sink) -> list[int]:
        return sorted(numbers_in(self.servers, sink.topic))


@pytest.fixture
def copy(spark, broker, numbers, tmp_path):
    return Copying(spark, broker.bootstrap_servers, numbers, tmp_path / "copy")


@pytest.fixture
def publish(spark, tmp_path):
    """Run one query, again and again, until it has done so many batches of ten numbers, all in all."""

    def publish(sink: ExactlyOnceKafkaSink, batches: int = 1) -> None:
        numbers = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 10).load()
        rows = numbers.selectExpr("CAST(value AS STRING) AS value")
        query = rows.writeStream.option("checkpointLocation", str(tmp_path / "checkpoint")).foreachBatch(sink).start()
        try:
            while not query.awaitTermination(0.1):
                if query.lastProgress and query.lastProgress.batchId >= batches - 1:
                    return
        finally:
            query.stop()

    return publish
