"""A query rests until Kafka has forgotten its transactional id, as after a week: nothing is lost or doubled."""

from __future__ import annotations

import pytest
from pyspark.errors import StreamingQueryException

from exactly_once_kafka import producer
from exactly_once_kafka.executors import transport
from exactly_once_kafka.sink import WRITERS, ExactlyOnceKafkaSink
from labs.equipment.broker import Broker
from labs.equipment.topics import create_topic
from labs.equipment.waiting import eventually
from labs.evidence.readers.transactions import read_transactions
from tests.sink.conftest import Copying, topic_of_numbers

FORGETFUL = {
    "transactional.id.expiration.ms": "20000",
    "transaction.remove.expired.transaction.cleanup.interval.ms": "200",
}
ALL = list(range(30))
pytestmark = [pytest.mark.long, pytest.mark.timeout(300)]


@pytest.fixture(scope="module")
def servers():
    with Broker(settings=FORGETFUL) as broker:
        yield broker.bootstrap_servers


@pytest.fixture
def copy(spark, servers, tmp_path):
    return Copying(spark, servers, topic_of_numbers(servers, f"numbers-{tmp_path.name}"), tmp_path / "copy")


@pytest.fixture(params=WRITERS)
def sink_for(servers, request, tmp_path):
    """Make sinks, the second of which succeeds the first."""
    topic = create_topic(servers, f"sink-{tmp_path.name}", 1)
    options = {"bootstrap_servers": servers, "writers": request.param, "driver_rows": 0}
    return lambda: ExactlyOnceKafkaSink(topic, topic, **options)


def resting(servers, sink):
    """Return a function for Spark that hands batch 2 to the sink only when Kafka has forgotten its transactional id."""

    def hand_over(rows, batch):
        if batch == 2:
            eventually(lambda: sink.name not in {each.transactional_id for each in read_transactions(servers)}, 90)
        sink(rows, batch)

    return hand_over


def test_epoch_that_is_too_old_to_be_trusted_is_not_used(copy, sink_for, servers, monkeypatch):
    for module in (producer, transport):
        monkeypatch.setattr(module, "TOO_OLD", 10)  # seconds: less than Kafka remembers
    sink = sink_for()
    copy(resting(servers, sink))
    assert copy.published(sink) == ALL


def test_epoch_that_kafka_forgot_unexpectedly_fails_the_batch_which_is_repeated(copy, sink_for, servers):
    sink = sink_for()
    with pytest.raises(StreamingQueryException, match="its transactional id has expired"):
        copy(resting(servers, sink))
    assert copy.published(sink) == ALL[:20]
    copy(sink_for())
    assert copy.published(sink) == ALL
