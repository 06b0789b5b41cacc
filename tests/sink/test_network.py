"""The exactly-once sink while the broker dies and its answers come late, never, or at the wrong time."""

from __future__ import annotations

import json
import shutil
import tempfile
import threading
import time
import weakref
from dataclasses import dataclass, replace
from typing import Any

import pytest

from exactly_once_kafka.deadline import Deadline
from exactly_once_kafka.executors import transport
from exactly_once_kafka.producer import PendingProducer
from exactly_once_kafka.sink import WRITERS, ExactlyOnceKafkaSink
from labs.equipment.broker import run_kafka_tool
from labs.equipment.topics import create_topic
from labs.equipment.waiting import eventually
from labs.evidence.auditor.audit import audit
from labs.evidence.auditor.expected import count_by_window
from labs.evidence.readers.results import Watcher, read_results
from labs.faults.fault_points import Fault, FaultPoints
from labs.faults.proxy import Request, proxied_broker
from labs.faults.proxy_server import Sighting
from labs.faults.supervisor import Supervisor
from labs.pipeline.log.generate import classroom
from labs.pipeline.log.replay import close_windows, replay
from labs.pipeline.query import ip_count
from tests.sink.mutants import MarkerBeforeEpoch, OneProducer

RECORDS_PER_BATCH = 80
pytestmark = [pytest.mark.long, pytest.mark.timeout(900)]


@dataclass
class At:
    """Do something when a batch comes to a point."""

    point: str
    batch: int
    strike: Any


@pytest.fixture(scope="module")
def kafka():
    """A broker of our own, to be killed, behind a proxy; and its source topic."""
    with proxied_broker() as (broker, proxy):
        servers, accesses = broker.bootstrap_servers, list(classroom(windows=8, clients=8))
        create_topic(servers, "classroom", 1)
        close_windows(replay(accesses, servers, "classroom").last_time_ms, servers, "classroom")
        yield broker, proxy, count_by_window(accesses)


class Run:
    """Runs the query through what strikes it, with a new sink at each restart; audits it, watched all along.

    The driver writes unless `writers` says otherwise.
    """

    def __init__(self, spark, servers, topic, expected):
        self._spark, self._servers, self._expected = spark, servers, expected
        self.topic, self.points, self._checkpoint = topic, FaultPoints(), tempfile.mkdtemp()
        weakref.finalize(self, shutil.rmtree, self._checkpoint, True)
        create_topic(servers, topic, 1)

    def start(self, sink=ExactlyOnceKafkaSink, **options: Any):
        records = ip_count.read_source(self._spark, self._servers, "classroom", records_per_batch=RECORDS_PER_BATCH)
        options = {"bootstrap_servers": self._servers, "writers": "driver", "points": self.points} | options
        self.sink = sink(self.topic, self.topic, **options)
        return ip_count.start_query(ip_count.count_ips(records), self.sink, self._checkpoint)

    def __call__(self, *strikes, sink=ExactlyOnceKafkaSink, restarts=4, **options: Any):
        watcher = Watcher(self._servers, self.topic)

        def attempt(number):
            self.start(sink, **options).awaitTermination()

        with self.points.armed(*strikes) as struck:
            self.attempts = Supervisor(attempt, restarts=restarts, delay=0.2, report=lambda _: None).run()
        assert len(struck) == len(strikes)
        return audit(self._expected, read_results(self._servers, self.topic), second_reader=watcher.stop())


@pytest.fixture
def run(spark, kafka, request):
    broker, _, expected = kafka
    return Run(spark, broker.bootstrap_servers, f"sink-{hash(request.node.name):x}", expected)


@pytest.mark.parametrize("writers", WRITERS)
@pytest.mark.parametrize("point", ["mid_rows", "before_commit", "after_commit"])
def test_sigkill_of_the_broker_around_the_commit(run, kafka, point, writers):
    broker = kafka[0]

    def kill_and_restart():
        broker.kill()
        broker.start()

    verdict = run(At(point, 5, kill_and_restart), writers=writers, driver_rows=0)
    assert verdict.valid, verdict


@pytest.mark.parametrize("writers", WRITERS)
def test_sigkill_of_the_broker_during_the_commit(run, kafka, writers):
    broker, proxy, _ = kafka

    def kill_when_the_commit_is_carried_out():
        lost = proxy.drop_next_response(Request.END_TXN)

        def kill():
            lost.wait()
            broker.kill()
            broker.start()

        threading.Thread(target=kill, daemon=True).start()

    verdict = run(At("before_commit", 5, kill_when_the_commit_is_carried_out), writers=writers, driver_rows=0)
    assert verdict.valid, verdict


def test_commit_acknowledged_late(run, kafka):
    verdict = run(At("before_commit", 5, lambda: kafka[1].delay_next_response(Request.END_TXN, 1.0)))
    assert verdict.valid, verdict


@pytest.mark.parametrize("writers", WRITERS)
def test_commit_whose_acknowledgement_is_lost(run, kafka, writers):
    verdict = run(
        At("before_commit", 5, lambda: kafka[1].drop_next_response(Request.END_TXN)), writers=writers, driver_rows=0
    )
    assert verdict.valid, verdict


def test_rows_and_marker_of_executors_whose_acknowledgements_are_lost(run, kafka):
    def lose():
        kafka[1].drop_next_response(Request.PRODUCE, transactional_id=run.topic)

    verdict = run(At("before_rows", 5, lose), At("mid_rows", 6, lose), writers="executors", driver_rows=0)
    assert verdict.valid, verdict
    assert len(run.attempts) == 1


def test_rows_of_executors_that_are_lost_without_a_word_are_written_again_under_the_next_epoch(run, kafka):
    def lose():
        kafka[1].drop_next_request(Request.PRODUCE, cut=False, transactional_id=run.topic)

    verdict = run(At("before_rows", 5, lose), writers="executors", driver_rows=0)
    assert verdict.valid, verdict
    assert len(run.attempts) == 1


def test_rows_of_executors_that_arrive_again_later_are_written_once(run, kafka):
    held, said = [], []

    def hold():
        held.append(kafka[1].hold_next_request(Request.PRODUCE, transactional_id=run.topic))

    def deliver():
        said.append(held[0].repeat().error)

    again = At("mid_rows", 5, deliver), At("mid_rows", 6, deliver)
    verdict = run(At("before_rows", 5, hold), *again, writers="executors", driver_rows=0)
    assert verdict.valid, verdict
    assert said == [None, "InvalidProducerEpochError"]  # known by its sequence number, and then by its epoch
    assert len(run.attempts) == 1


def test_connection_cut_in_the_middle_of_a_transaction(run, kafka):
    verdict = run(At("mid_rows", 5, kafka[1].cut))
    assert verdict.valid, verdict


@pytest.mark.parametrize(
    ("point", "writers"),
    [
        ("mid_rows", "driver"),
        ("before_commit", "driver"),
        ("before_rows", "executors"),
        ("mid_rows", "executors"),
        ("before_commit", "executors"),
    ],
)
def test_stopped_query_ends_soon_though_kafka_is_frozen(run, kafka, spark, point, writers):
    broker, frozen = kafka[0], threading.Event()

    def freeze():
        broker.pause()
        frozen.set()

    with run.points.armed(At(point, 4, freeze)):
        query = run.start(writers=writers, driver_rows=0)
        try:
            assert frozen.wait(100)
            began = time.monotonic()
            query.stop()
            took = time.monotonic() - began
        finally:
            broker.resume()
    assert took < 40  # 1 or 2 on a quiet machine; the transaction's timeout, 60, if nobody looks
    verdict = run()
    assert verdict.valid, verdict


@pytest.mark.parametrize("writers", WRITERS)
def test_outage_between_two_batches_fails_none(run, kafka, writers):
    broker = kafka[0]

    def outlast_the_preparation():
        if writers == "driver":  # executors' next epoch needs none: it came with the commit
            eventually(lambda: not run.sink.transport.has_epoch, timeout=60)
        broker.start()

    outage = At("after_commit", 4, broker.kill), At("before_checkpoint", 4, outlast_the_preparation)
    verdict = run(*outage, transaction_timeout_ms=10_000, writers=writers, driver_rows=0)
    assert verdict.valid, verdict
    assert len(run.attempts) == 1


def late_end_txn(kafka, topic):
    """Hold back the commit of batch 5 (the client retries it), and deliver it in the middle of batch 6."""
    held = []

    def hold():
        held.append(kafka[1].hold_next_request(Request.END_TXN, transactional_id=topic))

    return At("before_commit", 5, hold), At("mid_rows", 6, lambda: held[0].deliver())


@pytest.mark.parametrize("writers", WRITERS)
def test_commit_that_arrives_in_the_middle_of_the_next_batch_does_no_harm(run, kafka, writers):
    verdict = run(*late_end_txn(kafka, run.topic), writers=writers, driver_rows=0)
    assert verdict.valid, verdict
    assert len(run.attempts) == 1


@pytest.mark.parametrize("writers", WRITERS)
def test_commit_that_arrives_in_the_middle_of_a_batch_that_crashes_does_no_harm(run, kafka, writers):
    verdict = run(*late_end_txn(kafka, run.topic), Fault("before_commit", 6), writers=writers, driver_rows=0)
    assert verdict.valid, verdict


def test_mutant_with_one_producer_is_torn_by_a_late_commit(run, kafka):
    verdict = run(*late_end_txn(kafka, run.topic), Fault("before_commit", 6), sink=OneProducer)
    # The rows of batch 6 were in Kafka, without its marker, when the commit came: they became visible, and so did
    # their repetition.
    assert (verdict.lost, verdict.duplicated) == (0, 8), verdict


def publish_batch_five_behind_its_back(kafka, run):
    """Return a function that is another driver of the same query: it publishes batch 5 and is gone."""
    (broker, _, expected), topic = kafka, run.topic
    sink = ExactlyOnceKafkaSink(topic, topic, bootstrap_servers=broker.bootstrap_servers)

    def publish():
        before = sink._store.read(Deadline(30))
        assert before
        assert before.batch_id == 4
        window = max(result.window_start for result in read_results(broker.bootstrap_servers, topic)) + 5000
        producer = PendingProducer(sink._settings).take(Deadline(30))
        producer.begin_transaction()
        for (start, ip), count in expected.items():
            if start == window:
                producer.produce(topic, json.dumps({"window_start": start, "ip": ip, "count": count}), ip)
        marker = replace(before, batch_id=5, plan=run.sink._query.plan(5))
        sink._store.send(marker, producer, Deadline(30))
        producer.commit_transaction(30)

    return publish


def test_batch_that_another_driver_commits_meanwhile_is_not_published_again(run, kafka):
    verdict = run(At("before_rows", 5, publish_batch_five_behind_its_back(kafka, run)))
    assert verdict.valid, verdict
    assert "fenced" in str(run.attempts[0].error)


@pytest.mark.parametrize("writers", WRITERS)
def test_driver_that_wakes_just_before_it_requests_an_epoch_publishes_nothing_again(run, kafka, writers):
    wakes = At("before_fence", 5, publish_batch_five_behind_its_back(kafka, run))  # in the run that repeats batch 5
    verdict = run(Fault("before_rows", 5), wakes, writers=writers, driver_rows=0)
    assert verdict.valid, verdict
    assert len(run.attempts) == 2


def test_mutant_that_reads_the_marker_before_its_epoch_publishes_it_again(run, kafka):
    publish = publish_batch_five_behind_its_back(kafka, run)
    verdict = run(At("before_fence", 5, publish), sink=MarkerBeforeEpoch)
    assert verdict.duplicated == 8, verdict


@pytest.fixture
def throttled(kafka):
    """Let every client write a quarter of a megabyte a second; Kafka then tells it for how long to be silent."""
    quota = "--alter", "--entity-type", "clients", "--entity-default"
    command = "kafka.admin.ConfigCommand", "--bootstrap-server", kafka[0].bootstrap_servers, *quota

    def configure(*change):
        ran = run_kafka_tool(*command, *change, timeout=240)
        assert ran.returncode == 0, ran.stdout + ran.stderr

    configure("--add-config", "producer_byte_rate=250000")
    yield
    configure("--delete-config", "producer_byte_rate")


def throttle_time(sighting) -> int:
    """Return for how many milliseconds Kafka asks a producer to be silent: the end of a Produce response."""
    return int.from_bytes(sighting.frame[-5:-1])  # then no tagged fields


def test_throttled_executors_take_it_for_no_silence_and_send_no_rows_twice(
    spark, kafka, throttled, publish_rows, monkeypatch
):
    monkeypatch.setattr(transport, "KEEPS_CORE", 2)
    broker, proxy, _ = kafka
    servers, topic, rows = broker.bootstrap_servers, "throttled", 8
    create_topic(servers, topic, 1)
    sink = ExactlyOnceKafkaSink(topic, topic, bootstrap_servers=servers, writers="executors", driver_rows=0)
    seen = list[Sighting]()
    proxy.watch(seen.append)
    publish_rows(sink, spark.range(0, rows, 1, 1).selectExpr("repeat('x', 900000) AS value"))
    proxy.unwatch(seen.append)
    of_sink = [each for each in seen if each.passage.transactional_id == topic]
    produced = [each for each in of_sink if each.passage.kind is Request.PRODUCE]
    sent, answers = ([each for each in produced if each.passage.direction == way] for way in ("request", "response"))
    assert any(throttle_time(answer) > 2000 for answer in answers)
    assert len(sent) == rows + 1  # each in a batch of its own; the marker
