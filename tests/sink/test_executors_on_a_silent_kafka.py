"""Tasks that write to a Kafka that is silent give their cores back, so that other jobs of the application go on."""

from __future__ import annotations

import uuid
from typing import Any

import pytest

from exactly_once_kafka.executors import transport
from exactly_once_kafka.sink import ExactlyOnceKafkaSink
from labs.equipment.broker import Broker
from labs.equipment.topics import create_topic
from labs.equipment.waiting import eventually
from tests.sink.halfway import Halfway

CORES = 2
SETTINGS = {"broker.session.timeout.ms": "9000"}  # Kafka's own: one that wakes up has no leader for a moment
pytestmark = [pytest.mark.long, pytest.mark.timeout(300)]


@pytest.fixture(scope="module")
def kafka():
    with Broker(settings=SETTINGS) as broker:
        yield broker


@pytest.fixture
def others(spark, tmp_path):
    """Run a query that has nothing to do with Kafka, and return how many batches it has done."""
    rows = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 5).option("numPartitions", 1).load()
    query = rows.writeStream.format("noop").option("checkpointLocation", str(tmp_path / "others")).start()
    yield lambda: query.lastProgress["batchId"] if query.lastProgress else 0
    query.stop()


@pytest.mark.parametrize("again", [False, True], ids=["then it answers", "for longer than a transaction may last"])
def test_other_query_goes_on_while_kafka_is_frozen_in_the_middle_of_a_batch(
    spark, kafka, others, tmp_path, monkeypatch, again
):
    monkeypatch.setattr(transport, "KEEPS_CORE", 3)
    servers, name = kafka.bootstrap_servers, f"frozen-{uuid.uuid4().hex[:8]}"
    create_topic(servers, name, CORES)
    options: dict[str, Any] = {"bootstrap_servers": servers, "writers": "executors", "driver_rows": 0}
    options["transaction_timeout_ms"] = 20_000 if again else 60_000
    halfway = Halfway(spark, servers, name, tmp_path, tasks=CORES)
    query = halfway.start(ExactlyOnceKafkaSink(name, name, **options))
    halfway.wait(query, tasks=CORES)
    kafka.pause()
    try:
        before = others()
        halfway.go()
        eventually(lambda: others() > before + 5, timeout=120)
        if again:
            eventually(lambda: query.exception() is not None, timeout=120)
    finally:
        kafka.resume()
    if again:
        assert "batch 1" in str(query.exception())
        options["transaction_timeout_ms"] = 60_000  # a Kafka that was frozen may take a while to answer
        query = halfway.start(ExactlyOnceKafkaSink(name, name, **options))
    query.awaitTermination()
    assert halfway.audit().valid, halfway.audit()
