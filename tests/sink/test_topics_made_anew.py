"""A topic that is made anew in mid-run, or deleted, is noticed at once, and not after a whole transaction's time."""

from __future__ import annotations

import time

import pytest
from confluent_kafka.admin import AdminClient, NewTopic
from pyspark.errors import StreamingQueryException

from exactly_once_kafka.deadline import Deadline
from exactly_once_kafka.producer import PendingProducer
from exactly_once_kafka.sink import WRITERS
from labs.equipment.broker import Broker
from labs.equipment.waiting import eventually
from labs.faults.supervisor import Supervisor
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


@pytest.mark.parametrize(
    "options",
    [{"writers": "driver"}, {"writers": "executors", "driver_rows": 0}, {"writers": "executors"}],
    ids=["by librdkafka", "by the executors", "few rows by the driver"],
)
@pytest.mark.parametrize("point", ["before_rows", "mid_rows"])
def test_topic_with_fewer_partitions_is_noticed_and_a_restart_goes_on(broker, topic, sink_for, copy, options, point):
    to = topic(partitions=6)
    anew = Anew(broker.bootstrap_servers, to, point, partitions=2)
    sink = sink_for(to=to, points=anew, transaction_timeout_ms=1000 * TIMEOUT, **options)
    said = f"BatchFailed {to}"  # it need not fail
    try:
        copy(sink)
    except StreamingQueryException as failed:
        said = str(failed).replace(f"sink-of-{to}", "")
    assert "BatchFailed" in said
    assert to in said
    assert anew.done is not None
    assert time.monotonic() - anew.done < TIMEOUT / 2
    copy(sink)
    later = [number for number in numbers_in(broker.bootstrap_servers, to) if number >= 20]
    assert sorted(later) == list(range(20, 30))


@pytest.mark.parametrize(
    "options",
    [{"writers": "driver"}, {"writers": "executors", "driver_rows": 0}, {"writers": "executors"}],
    ids=["by librdkafka", "by the executors", "few rows by the driver"],
)
@pytest.mark.parametrize("point", ["before_rows", "mid_rows"])
def test_topic_that_is_deleted_is_noticed(broker, topic, sink_for, copy, options, point):
    to = topic(partitions=2)
    anew = Anew(broker.bootstrap_servers, to, point, 0)
    sink = sink_for(to=to, points=anew, transaction_timeout_ms=1000 * TIMEOUT, **options)
    with pytest.raises(StreamingQueryException, match=rf"BatchFailed.*no such topic.*[' ]{to}"):
        copy(sink)
    assert anew.done is not None
    assert time.monotonic() - anew.done < TIMEOUT / 2
    anew.make(2)
    # A first restart may ask a broker that has not heard of the new one.
    Supervisor(lambda _: copy(sink), restarts=3, delay=0, report=print).run()
    later = [number for number in numbers_in(broker.bootstrap_servers, to) if number >= 20]
    assert sorted(later) == list(range(20, 30))


@pytest.mark.parametrize("options", [{"writers": "driver"}, {"writers": "executors", "driver_rows": 0}], ids=str)
@pytest.mark.parametrize("point", ["before_rows", "before_commit"])
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
    assert published == list(range(10 if point == "before_rows" else 20))
    with pytest.raises(StreamingQueryException, match="SinkRefused"):
        copy(sink)
    assert copy.published(sink) == published


class PublishedAndForgotten:
    """Before batch 0 takes an epoch: another driver of the query publishes it, and the marker's topic is made anew."""

    point, batch = "before_fence", 0

    def __init__(self, sink, servers: str):
        self._sink, self._servers = sink, servers

    def strike(self) -> None:
        producer = PendingProducer(self._sink._settings).take(Deadline(30))
        producer.begin_transaction()
        for number in range(10):
            producer.produce(self._sink.topic, str(number))
        producer.commit_transaction(30)
        marker_topic, admin = self._sink._store.topic.name, AdminClient({"bootstrap.servers": self._servers})
        admin.delete_topics([marker_topic])[marker_topic].result(10)
        eventually(lambda: marker_topic not in admin.list_topics(timeout=5).topics)
        compacted = NewTopic(marker_topic, 1, 1, config={"cleanup.policy": "compact"})
        admin.create_topics([compacted])[marker_topic].result(10)


@pytest.mark.parametrize("writers", WRITERS)
def test_marker_topic_made_anew_between_the_look_and_the_epoch_is_refused(broker, sink_for, copy, writers):
    sink = sink_for(writers=writers)
    with (
        sink.points.armed(PublishedAndForgotten(sink, broker.bootstrap_servers)),
        pytest.raises(StreamingQueryException, match=r"(?s)refuses batch 0.*deleted and created again"),
    ):
        copy(sink)
    assert sorted(numbers_in(broker.bootstrap_servers, sink.topic)) == list(range(10))
