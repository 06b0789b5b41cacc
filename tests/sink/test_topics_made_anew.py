"""A topic that is made anew in mid-run, or deleted, is noticed at once, and not after a whole transaction's time."""

from __future__ import annotations

import time

import pytest
from confluent_kafka.admin import AdminClient, NewTopic
from pyspark.errors import StreamingQueryException

from labs.equipment.broker import Broker
from labs.equipment.eventually import eventually
from tests.sink.conftest import numbers_in, topic_of_numbers

pytestmark = [pytest.mark.long, pytest.mark.timeout(900)]

TIMEOUT = 60  # seconds, of a transaction


@pytest.fixture(scope="module")
def broker():
    """A Kafka of its own: a transaction on a topic that is deleted may be about to end there for long."""
    with Broker() as started:
        yield started


@pytest.fixture(scope="module")
def numbers(broker):
    return topic_of_numbers(broker.bootstrap_servers, "numbers")


class Anew:
    """At `point` of batch 1, deletes the topic and makes it anew, unless it is to have no partitions."""

    def __init__(self, servers: str, topic: str, point: str, partitions: int):
        self._admin = AdminClient({"bootstrap.servers": servers})
        self._topic, self._at, self._partitions = topic, (point, 1), partitions
        self.done: float | None = None  # when it was

    def __call__(self, point: str, batch_id: int) -> None:
        if self._at != (point, batch_id) or self.done:
            return
        self._admin.delete_topics([self._topic])[self._topic].result(10)
        eventually(lambda: self._topic not in self._admin.list_topics(timeout=5).topics)
        if self._partitions:
            self.make(self._partitions)
        self.done = time.monotonic()

    def make(self, partitions: int) -> None:
        self._admin.create_topics([NewTopic(self._topic, partitions, 1)])[self._topic].result(10)
        eventually(lambda: self._topic in self._admin.list_topics(timeout=5).topics)


@pytest.mark.parametrize("driver_rows", [0, 20_000], ids=["by the executors", "by the driver"])
@pytest.mark.parametrize("partitions", [2], ids=["fewer partitions"])
@pytest.mark.parametrize("point", ["before_write", "mid_transaction"])
def test_topic_with_fewer_partitions_is_noticed_and_a_restart_goes_on(
    broker, topic, sink_for, copy, driver_rows, partitions, point
):
    to = topic(partitions=6)
    anew = Anew(broker.bootstrap_servers, to, point, partitions)
    sink = sink_for(
        to=to, writers="executors", driver_rows=driver_rows, points=anew, transaction_timeout_ms=1000 * TIMEOUT
    )
    said = f"BatchFailed {to}"  # it need not fail
    try:
        copy(sink)
    except StreamingQueryException as failed:
        said = str(failed).replace(f"sink-of-{to}", "")
    assert "BatchFailed" in said
    assert to in said
    assert anew.done is not None
    assert time.monotonic() - anew.done < TIMEOUT / 2
    if not partitions:
        anew.make(2)
    copy(sink)
    later = [number for number in numbers_in(broker.bootstrap_servers, to) if number >= 20]
    assert sorted(later) == list(range(20, 30))


@pytest.mark.parametrize("point", ["before_write", "mid_transaction"])
def test_topic_that_is_deleted_is_noticed_where_librdkafka_writes(broker, topic, sink_for, copy, point):
    to = topic(partitions=2)
    anew = Anew(broker.bootstrap_servers, to, point, 0)
    sink = sink_for(to=to, points=anew, transaction_timeout_ms=1000 * TIMEOUT)
    with pytest.raises(StreamingQueryException, match=rf"BatchFailed.*no such topic.*topic '{to}'"):
        copy(sink)
    assert anew.done is not None
    assert time.monotonic() - anew.done < TIMEOUT / 2
    anew.make(2)
    copy(sink)
    later = [number for number in numbers_in(broker.bootstrap_servers, to) if number >= 20]
    assert sorted(later) == list(range(20, 30))


@pytest.mark.parametrize("options", [{"writers": "driver"}, {"writers": "executors", "driver_rows": 0}], ids=str)
@pytest.mark.parametrize("point", ["before_write", "before_commit"])
def test_deleted_topic_of_the_marker_is_refused_within_seconds(broker, topic, sink_for, copy, options, point):
    """Before the commit, the marker is in it already: it is the next batch that misses it."""
    to = topic()
    marker_topic = f"sink-of-{to}-marker"
    anew = Anew(broker.bootstrap_servers, marker_topic, point, 0)
    sink = sink_for(to=to, points=anew, transaction_timeout_ms=1000 * TIMEOUT, **options)
    with pytest.raises(StreamingQueryException, match=rf"(?s)SinkRefused.*'{marker_topic}' was deleted.*adopt sink-of"):
        copy(sink)
    assert anew.done is not None
    assert time.monotonic() - anew.done < TIMEOUT / 2
    published = copy.published(sink)
    assert published == list(range(10 if point == "before_write" else 20))
    with pytest.raises(StreamingQueryException, match="SinkRefused"):
        copy(sink)
    assert copy.published(sink) == published
