"""A schedule of what really happened: each request, answer and epoch as it went over the wire, in its order."""

from __future__ import annotations

import json
import uuid
from typing import Any
from xml.etree import ElementTree

import pytest
from confluent_kafka import KafkaException, Producer

from exactly_once_kafka.points import FAULT_POINTS
from exactly_once_kafka.sink import ExactlyOnceKafkaSink
from labs.equipment.topics import create_topic
from labs.evidence.readers.results import read_to_end
from labs.faults.proxy import Request, proxied_broker
from labs.pipeline.query import ip_count
from labs.schedules.recorder import Recorder
from labs.schedules.schedule import HELD, Event, Schedule
from labs.schedules.sequence_diagram import draw

D1, D2, NET = "driver 1", "driver 2", "network"
PATIENCE = 30.0  # seconds
NO_PROXY: Any = None  # of a recorder that is told everything, and watches nothing


@pytest.fixture(scope="module")
def kafka():
    with proxied_broker() as (broker, proxy):
        yield broker, proxy


class Lane:
    """Drivers of one name, whose steps are taken by the test, and a recorder that sees them."""

    def __init__(self, broker, proxy):
        self.servers, self.proxy, self.name = broker.bootstrap_servers, proxy, f"lane-{uuid.uuid4().hex[:8]}"
        self.topic, self.marker_topic = f"{self.name}-results", f"{self.name}-marker"
        create_topic(self.servers, self.topic, partitions=1)
        create_topic(self.servers, self.marker_topic, partitions=1, cleanup_policy="compact")
        self.recorder = Recorder(proxy, self.topic, self.marker_topic, record_of=int)

    def producer(self, driver=D1, **settings):
        return Producer(
            {"bootstrap.servers": self.servers, "client.id": f"{driver} of {self.name}", "log_level": 0, "linger.ms": 0}
            | {key.replace("_", "."): value for key, value in settings.items()}
        )

    def fenced(self, driver=D1):
        """Return a producer that has an epoch, in a transaction that is begun."""
        producer = self.producer(driver, transactional_id=self.name)
        producer.init_transactions(PATIENCE)
        producer.begin_transaction()
        return producer

    def send(self, producer, batch, *rows):
        for row in rows:
            producer.produce(self.topic, str(row), partition=0, headers={"batch_id": str(batch)})
            assert producer.flush(PATIENCE) == 0

    def hold(self, kind, driver=D1, cut_client=True):
        return self.proxy.hold_next_request(kind, client_id=f"{driver} of {self.name}", cut_client=cut_client)

    @property
    def events(self):
        return list(self.recorder.schedule("a lane").events)

    def visible(self):
        return tuple(int(message.value() or b"") for message in read_to_end(self.servers, self.topic, "read_committed"))


@pytest.fixture
def lane(kafka):
    lane = Lane(*kafka)
    with lane.recorder:
        yield lane
    kafka[1].disarm()


def carried(action, request, batch=None, row=None, epoch=None, answer="", sees=None):
    return Event(NET, action, batch, row, epoch, answer, request, D1, sees)


@pytest.mark.long
def test_transaction_that_commits_and_one_that_aborts(lane):
    producer = lane.fenced()
    lane.send(producer, 4, 0)
    producer.produce(lane.marker_topic, json.dumps({"batch_id": 4}), key="a sink", partition=0)
    assert producer.flush(PATIENCE) == 0
    producer.commit_transaction(PATIENCE)
    producer.begin_transaction()
    lane.send(producer, 5, 1)
    producer.abort_transaction(PATIENCE)
    assert lane.events == [
        Event(D1, "fence", 4, answer="epoch 0"),
        Event(D1, "row", 4, 0, 0, "ok"),
        Event(D1, "marker", 4, None, 0, "ok"),
        Event(D1, "commit", 4, None, 0, "ok", sees=(0,)),
        Event(D1, "row", 5, 1, 0, "ok"),
        Event(D1, "abort", 5, None, 0, "ok"),
    ]


@pytest.mark.long
def test_without_transactions_there_are_no_epochs_and_each_record_is_seen_at_once(lane):
    lane.send(lane.producer(enable_idempotence=True), 0, 7, 8)
    assert lane.events == [
        Event(D1, "row", 0, 7, None, "ok", sees=(7,)),
        Event(D1, "row", 0, 8, None, "ok", sees=(7, 8)),
    ]


@pytest.mark.long
def test_request_that_is_held_and_arrives_twice(lane):
    producer = lane.producer(enable_idempotence=False)
    held = lane.hold(Request.PRODUCE, cut_client=False)
    producer.produce(lane.topic, "3", partition=0, headers={"batch_id": "0"})
    held.wait()
    held.deliver()
    assert producer.flush(PATIENCE) == 0
    held.repeat()
    assert lane.events == [
        Event(D1, "row", 0, 3, None, HELD),
        carried("deliver again", "row", 0, 3, answer="ok", sees=(3,)),
        carried("deliver", "row", 0, 3, answer="ok", sees=(3, 3)),
    ]
    assert lane.visible() == (3, 3)


@pytest.mark.long
def test_request_that_is_lost_and_an_answer_that_is_lost(lane):
    producer = lane.producer(enable_idempotence=True)
    lane.send(producer, 0, 0)  # whose epoch is asked for first
    lane.proxy.drop_next_request(Request.PRODUCE, client_id=f"{D1} of {lane.name}")
    lane.send(producer, 0, 1)
    lane.proxy.drop_next_response(Request.PRODUCE, client_id=f"{D1} of {lane.name}")
    lane.send(producer, 0, 2)
    assert lane.events[1:] == [
        Event(D1, "row", 0, 1, None, HELD),
        carried("lose", "row", 0, 1),
        Event(D1, "row", 0, 1, None, "ok", sees=(0, 1)),
        Event(D1, "row", 0, 2, None, HELD),
        carried("lose the answer", "row", 0, 2, answer="ok", sees=(0, 1, 2)),
        Event(D1, "row", 0, 2, None, "ok"),
    ]
    assert lane.visible() == (0, 1, 2)


@pytest.mark.long
def test_fence_of_an_open_transaction_takes_two_epochs_and_is_one_request(lane):
    first = lane.fenced()
    lane.send(first, 0, 0)
    lane.recorder.tell(Event("supervisor", "start", 0, whose=D2))
    second = lane.fenced(D2)
    with pytest.raises(KafkaException):
        first.commit_transaction(PATIENCE)
    lane.send(second, 0, 0)
    second.commit_transaction(PATIENCE)
    assert lane.events == [
        Event(D1, "fence", 0, answer="epoch 0"),
        Event(D1, "row", 0, 0, 0, "ok"),
        Event("supervisor", "start", 0, whose=D2),
        Event(D2, "fence", 0, answer="epoch 2"),  # Kafka took 1 for itself, to end what was open
        Event(D1, "commit", 0, None, 0, "fenced"),
        Event(D2, "row", 0, 0, 2, "ok"),
        Event(D2, "commit", 0, None, 2, "ok", sees=(0,)),
    ]


@pytest.mark.long
def test_records_behind_an_open_transaction_are_not_seen_until_it_ends(lane):
    opened, plain = lane.fenced(), lane.producer(D2)
    lane.send(opened, 0, 0)
    lane.recorder.tell(Event("supervisor", "start", 0, whose=D2))
    lane.send(plain, 0, 1)
    assert [event.sees for event in lane.events] == [None] * 4
    opened.commit_transaction(PATIENCE)
    assert lane.events[-1].sees == (0, 1)


@pytest.mark.long
def test_request_that_is_answered_when_its_driver_is_gone_is_delivered_by_the_network(lane):
    producer = lane.producer(enable_idempotence=False)
    late = lane.proxy.delay_next_response(Request.PRODUCE, 0.5, client_id=f"{D1} of {lane.name}")
    producer.produce(lane.topic, "0", partition=0, headers={"batch_id": "0"})
    producer.poll(0)
    late.wait()
    lane.recorder.tell(Event(D1, "crash"))
    assert producer.flush(PATIENCE) == 0
    assert lane.events == [
        Event(D1, "row", 0, 0, None, HELD),
        Event(D1, "crash"),
        carried("deliver", "row", 0, 0, answer="ok", sees=(0,)),
    ]


@pytest.mark.long
def test_several_requests_under_way_stand_where_they_were_sent(lane):
    producer = lane.producer(enable_idempotence=False, batch_num_messages=1)
    for row in range(3):
        producer.produce(lane.topic, str(row), partition=0, headers={"batch_id": "0"})
    assert producer.flush(PATIENCE) == 0
    assert lane.events == [Event(D1, "row", 0, n, None, "ok", sees=tuple(range(n + 1))) for n in range(3)]


@pytest.mark.long
def test_answers_lost_of_several_under_way_with_the_producers_numbers_and_what_kafka_knew(lane):
    P1, settings = "producer 1", {"batch_num_messages": 1, "socket_timeout_ms": 1000, "socket_max_fails": 1}
    lane.recorder = Recorder(lane.proxy, lane.topic, record_of=int, sequences=True)
    with lane.recorder:
        producer = lane.producer(P1, enable_idempotence=True, request_timeout_ms=1000, **settings)
        lane.proxy.drop_next_response(Request.PRODUCE, client_id=f"{P1} of {lane.name}", cut=False)
        for row in range(3):
            producer.produce(lane.topic, str(row), partition=0)
        assert producer.flush(PATIENCE) == 0
    first = [event for event in lane.events if event.actor == P1][:3]
    assert first == [Event(P1, "row", None, n, None, HELD, sequence=n) for n in range(3)]
    lost = [event._replace(sees=None) for event in lane.events if event.actor == NET]
    assert lost == [Event(NET, "lose the answer", None, n, None, "ok", "row", P1) for n in range(3)]
    again = [event for event in lane.events if event.actor == P1][3:]
    assert again == [Event(P1, "row", None, n, None, "known already", sequence=n) for n in range(3)]
    assert str(again[2]) == "producer 1 sends record 2 (sequence number 2): known already"
    assert lane.visible() == (0, 1, 2)


@pytest.mark.long
def test_what_belongs_to_nobody_is_not_recorded(lane):
    other = create_topic(lane.servers, f"{lane.name}-other", partitions=1)
    producer = lane.producer()
    producer.produce(other, "no number", partition=0)
    stranger = lane.producer("nobody")
    stranger.produce(lane.topic, "0", partition=0)
    assert producer.flush(PATIENCE) + stranger.flush(PATIENCE) == 0
    assert lane.events == []


@pytest.mark.long
def test_record_without_a_number_is_said(lane):
    producer = lane.producer()
    producer.produce(lane.topic, "no number", partition=0)
    assert producer.flush(PATIENCE) == 0
    with pytest.raises(ValueError, match="no number"):
        lane.recorder.schedule("a lane")


def test_points_tell_of_plans_and_notes_and_pass_on_what_breaks():
    def breaks(point, batch):
        passed.append((point, batch))
        if batch == 1 and point == FAULT_POINTS[-1]:
            raise RuntimeError("crash")

    passed: list = []
    recorder = Recorder(NO_PROXY, "results")
    points = recorder.points_and(breaks, driver=D2)
    for point in FAULT_POINTS:
        points(point, 0)
    with pytest.raises(RuntimeError):
        [points(point, 1) for point in FAULT_POINTS]
    assert passed == [(point, batch) for batch in (0, 1) for point in FAULT_POINTS]
    assert recorder.schedule("").events == (Event(D2, "plan", 0), Event(D2, "note", 0), Event(D2, "plan", 1))
    assert str(recorder.schedule("").events[0]) == "driver 2 plans batch 0"


def test_starts_and_awakenings_are_told_in_words():
    recorder = Recorder(NO_PROXY, "results")
    recorder.starts("producer 2")
    recorder.wakes("producer 1")
    told = recorder.schedule("a lane", "valid")
    assert told.events == (Event("supervisor", "start", whose="producer 2"), Event("producer 1", "wake"))
    assert str(told) == "a lane: valid\n  1. supervisor starts producer 2\n  2. producer 1 wakes up"
    assert {"starts", "wakes up"} <= {text.text for text in ElementTree.fromstring(draw(told)).iter() if text.text}


# The sink itself


class Copying:
    """The real sink copies six numbers, two in a batch, from a topic."""

    def __init__(self, spark, lane, checkpoint):
        self._spark, self._lane, self._checkpoint = spark, lane, checkpoint
        self._source = create_topic(lane.servers, f"{lane.name}-numbers", partitions=1)
        producer = Producer({"bootstrap.servers": lane.servers})
        for number in range(6):
            producer.produce(self._source, str(number))
        assert producer.flush(PATIENCE) == 0

    def __call__(self, points):
        records = ip_count.read_source(self._spark, self._lane.servers, self._source, records_per_batch=2)
        sink = ExactlyOnceKafkaSink(
            self._lane.name,
            self._lane.topic,
            bootstrap_servers=self._lane.servers,
            writers="driver",
            points=points,
            client_id=f"{D1} of {self._lane.name}",
        )
        ip_count.start_query(records.selectExpr("value"), sink, self._checkpoint).awaitTermination()


@pytest.mark.long
@pytest.mark.timeout(300)
def test_sink_whose_commit_is_held_and_arrives_in_the_middle_of_the_next_batch(spark, kafka, tmp_path):
    lane, held = Lane(*kafka), []

    def strike(point, batch):
        if (point, batch) == ("before_commit", 0):
            held.append(lane.hold(Request.END_TXN))
        if (point, batch) == ("mid_rows", 1):
            held[0].deliver()

    with lane.recorder:
        Copying(spark, lane, tmp_path / "checkpoint")(lane.recorder.points_and(strike))
    recorded = lane.recorder.schedule("the sink")

    def batch(n, epoch, *commits):
        first, second = 2 * n, 2 * n + 1
        yield Event(D1, "fence", n, answer=f"epoch {epoch}")
        yield Event(D1, "plan", n)
        yield from (Event(D1, "row", n, row, epoch, "ok") for row in (first, second))
        yield Event(D1, "marker", n, None, epoch, "ok")
        yield from (Event(D1, "commit", n, None, epoch, answer) for answer in commits)
        yield Event(D1, "note", n)

    # The epoch for the next batch is asked for in the background, before or after the last one is noted. Of the one for
    # batch 3, which does not come, something may have been seen.
    plain = [event._replace(sees=None) for event in recorded.events if event.batch in range(3)]
    plain.remove(carried("deliver", "commit", 0, None, 0, "fenced"))
    by_batch = sorted(plain, key=lambda event: event.batch or 0)
    assert by_batch == [*batch(0, 0, HELD, "ok"), *batch(1, 1, "ok"), *batch(2, 2, "ok")]
    assert [event.sees for event in recorded.events if event.sees] == [tuple(range(n)) for n in (2, 4, 6)]
    assert lane.visible() == tuple(range(6))
    order = [(event.actor, event.action, event.batch) for event in recorded.events]
    assert order.index((D1, "fence", 1)) < order.index((NET, "deliver", 0)) < order.index((D1, "commit", 1))

    assert Schedule.from_json(recorded.to_json()) == recorded
    drawing = ElementTree.fromstring(draw(recorded))
    assert {"commit of driver 1 · epoch 0 arrives", "fenced"} <= {text.text for text in drawing.iter() if text.text}
