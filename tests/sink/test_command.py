"""`python -m exactly_once_kafka`: what an operator is told about a marker, and what he can set."""

from __future__ import annotations

import json
import uuid

import pytest
from confluent_kafka import KafkaException, Producer

from exactly_once_kafka import __main__ as command
from exactly_once_kafka.__main__ import main
from exactly_once_kafka.deadline import Deadline
from exactly_once_kafka.marker_store import MarkerStore
from exactly_once_kafka.producer import PendingProducer, commit
from exactly_once_kafka.producer_options import producer_settings
from exactly_once_kafka.protocol import ADOPTED, Marker

pytestmark = pytest.mark.bench


class Operator:
    """Runs `sink ACTION NAME` on a name of its own, and is told the exit code, the output and the errors."""

    def __init__(self, servers, capsys):
        self._servers, self._capsys, self._name = servers, capsys, f"of-{uuid.uuid4().hex}"
        self.store = MarkerStore(self._name, f"{self._name}-marker", servers, {})

    def __call__(self, action, *more, servers=None):
        code = main([action, self._name, "--bootstrap-servers", servers or self._servers, *more])
        return code, *self._capsys.readouterr()


@pytest.fixture
def sink(broker, capsys):
    return Operator(broker.bootstrap_servers, capsys)


def test_marker_is_set_and_shown(sink):
    code, shown, _ = sink("show")
    assert (code, "no marker" in shown) == (0, True)
    code, shown, _ = sink("adopt", "--batch", "41", "--query-id", "a-query")
    assert (code, shown.splitlines()[-1]) == (0, "now: batch 41 of query a-query was committed last")
    assert "batch 41 of query a-query" in sink("show")[1]
    assert sink.store.read(Deadline(30)) == Marker(41, "a-query", ADOPTED)


def test_query_and_plan_are_taken_from_the_checkpoint(sink, tmp_path):
    (tmp_path / "metadata").write_text('{"id":"from-the-checkpoint"}')
    (tmp_path / "offsets").mkdir()
    (tmp_path / "offsets" / "3").write_text('v1\n{"batchWatermarkMs":5,"batchTimestampMs":99}\n{"t":{"0":7}}')
    shown = sink("adopt", "--batch", "3", "--checkpoint", str(tmp_path))[1]
    assert "of query from-the-checkpoint" in shown
    assert shown.rstrip().endswith('{"offsets":[{"t":{"0":7}}],"planned_ms":99,"watermark_ms":5}')


class Checkpoint:
    """A checkpoint that has no more than plans: `checkpoint.plan(3, {"t": {"0": 7}}, planned=99)`."""

    def __init__(self, directory, query_id):
        self._directory = directory
        (directory / "offsets").mkdir(parents=True)
        (directory / "metadata").write_text(json.dumps({"id": query_id}))

    def plan(self, batch, offset, planned):
        metadata = json.dumps({"batchWatermarkMs": 5, "batchTimestampMs": planned})
        (self._directory / "offsets" / str(batch)).write_text(f"v1\n{metadata}\n{json.dumps(offset)}")
        return "--batch", str(batch), "--checkpoint", str(self._directory)


@pytest.mark.long
def test_batch_that_goes_back_to_before_the_marker_is_adopted_by_force_alone(sink, tmp_path):
    ours, anew = Checkpoint(tmp_path / "one", "one"), Checkpoint(tmp_path / "other", "other")
    batch = ours.plan(4, {"t": {"0": 7}}, planned=99)
    assert sink("adopt", *batch)[0] == sink("adopt", *batch)[0] == 0
    for back in (
        ours.plan(5, {"t": {"0": 6}}, planned=98),  # as Spark has it when it has repartitioned the state
        ours.plan(3, {"t": {"0": 6}}, planned=98),
        ours.plan(4, {"t": {"0": 6}}, planned=200),  # planned anew, and less of it
        ("--batch", "3", "--query-id", "one"),
        anew.plan(9, {"t": {"0": 6}}, planned=200),
    ):
        code, _, error = sink("adopt", *back)
        assert (code, "publish again what the topic holds up to batch 4" in error, "--force" in error) == (
            1,
            True,
            True,
        )
        assert sink.store.read(Deadline(30)).batch_id == 4
    for onward in (
        ours.plan(4, {"t": {"0": 7}}, planned=200),  # planned anew, and the same of it
        ours.plan(5, {"t": {"0": 7}}, planned=200),  # repartitioned again
        anew.plan(0, {"t": {"0": 7}}, planned=300),
    ):
        code, _, error = sink("adopt", *onward)
        assert (code, error) == (0, "")
    assert sink("adopt", *anew.plan(0, {"t": {"0": 6}}, planned=400), "--force")[0] == 0
    assert '"0":6' in sink.store.read(Deadline(30)).plan


def test_batch_that_is_committed_between_the_look_and_the_fence_is_not_adopted_away(sink, broker, monkeypatch):
    """The query was not stopped, or its last commit arrives late: batch 42 would be published twice."""
    assert sink("adopt", "--batch", "41", "--query-id", "a-query")[0] == 0
    driver = PendingProducer(producer_settings(sink.store.name, broker.bootstrap_servers, {})).take(Deadline(30))
    driver.begin_transaction()
    sink.store.send(Marker(42, "a-query", ADOPTED), driver, Deadline(30))

    class AfterTheCommit(PendingProducer):
        def __init__(self, *given, **more):
            commit(driver, Deadline(30))
            super().__init__(*given, **more)

    monkeypatch.setattr(command, "PendingProducer", AfterTheCommit)
    code, _, error = sink("adopt", "--batch", "41", "--query-id", "a-query")
    assert (code, "publish again what the topic holds up to batch 42" in error) == (1, True), error
    assert sink.store.read(Deadline(30)) == Marker(42, "a-query", ADOPTED)


def test_batch_whose_commit_comes_after_an_operator_has_set_the_marker_is_aborted(sink, broker):
    assert sink("adopt", "--batch", "41", "--query-id", "a-query")[0] == 0
    driver = PendingProducer(producer_settings(sink.store.name, broker.bootstrap_servers, {})).take(Deadline(30))
    driver.begin_transaction()
    sink.store.send(Marker(42, "a-query", ADOPTED), driver, Deadline(30))
    assert sink("adopt", "--batch", "41", "--query-id", "a-query")[0] == 0
    with pytest.raises(KafkaException, match=r"FENCED|EPOCH"):
        commit(driver, Deadline(30))
    assert sink.store.read(Deadline(30)) == Marker(41, "a-query", ADOPTED)


@pytest.mark.long
@pytest.mark.parametrize("value", [None, b"deleted"])
def test_record_that_is_no_marker_is_said_to_be_none_and_may_be_overwritten(sink, broker, value):
    assert sink("adopt", "--batch", "41", "--query-id", "a-query")[0] == 0
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers})
    producer.produce(sink.store.topic.name, value, key=sink.store.name)
    assert producer.flush(30) == 0
    code, _, error = sink("show")
    assert (code, error.count("\n"), "is not a marker" in error, "before it: batch 41" in error) == (1, 1, True, True)
    assert sink("adopt", "--batch", "40", "--query-id", "a-query")[0] == 1
    assert sink("adopt", "--batch", "41", "--query-id", "a-query")[0] == 0
    assert "batch 41 of query a-query" in sink("show")[1]


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ((), "--batch N"),
        (("--batch", "-1"), "--batch N"),
        (("--batch", "1"), "--checkpoint DIR or --query-id ID"),
        (("--batch", "1", "--query-id", "q", "--option", "foo"), "KEY=VALUE"),
    ],
)
def test_what_adopt_lacks_is_said(sink, more, message):
    code, _, error = sink("adopt", *more)
    assert (code, error.count("\n")) == (1, 1)
    assert message in error


def test_topic_that_would_forget_the_marker_gets_none(sink, topic):
    code, _, error = sink("adopt", "--batch", "1", "--query-id", "q", "--marker-topic", topic())
    assert (code, "would lose the marker" in error) == (1, True), error


def test_kafka_that_does_not_answer_is_said(sink):
    code, _, error = sink("show", servers="127.0.0.1:1")
    assert (code, "no Kafka answers at 127.0.0.1:1" in error) == (1, True), error
