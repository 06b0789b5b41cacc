"""Positions in the source, and rows as Python's `foreach` gets them: nothing is started here."""

from __future__ import annotations

import pytest
from pyspark import cloudpickle
from pyspark.sql import Row

from exactly_once_kafka.errors import SinkRefused, Undecidable
from exactly_once_kafka.patience import Patience
from exactly_once_kafka.real_time.clients import Clients
from exactly_once_kafka.real_time.partition_writer import key_of
from exactly_once_kafka.real_time.position import BEGINNING, Position, SourceRows
from exactly_once_kafka.real_time.row import record_of, source_of
from exactly_once_kafka.real_time.sink import RealTimeKafkaSink
from exactly_once_kafka.real_time.task import Task
from labs.faults.task_fault import TaskFaults


def test_rows_of_one_record_are_counted_from_one():
    rows = SourceRows()
    assert [rows.position(offset) for offset in (3, 3, 3, 7)] == [(3, 1), (3, 2), (3, 3), (7, 1)]


def test_offset_that_goes_back_is_refused():
    rows = SourceRows()
    rows.position(7)
    with pytest.raises(ValueError, match="offset 3 came after one of 7"):
        rows.position(3)


def test_position_survives_its_text_and_none_is_the_beginning():
    assert Position.parse(str(Position(41, 2))) == Position(41, 2)
    assert Position.parse(None) == BEGINNING < Position(0, 1)


def test_row_becomes_a_record():
    header = Row(key="h", value=bytearray(b"x"))
    row = Row(key="k", value=bytearray(b"v"), partition=3, headers=[header], source=None)
    assert record_of(row, "t") == ("t", b"v", b"k", 3, [("h", b"x")])
    assert record_of(Row(value=None, topic="u"), None) == ("u", None, None, -1, None)


def test_clients_of_a_task_share_one_login_token():
    def token(config: str) -> tuple[str, float]:
        raise AssertionError("nobody connects here")

    login = {"security_protocol": "SASL_PLAINTEXT", "sasl_mechanism": "OAUTHBEARER", "oauth_cb": token}
    clients = Clients("sink", None, "marker", "127.0.0.1:1", login)
    clients = cloudpickle.loads(cloudpickle.dumps(clients))  # as they come to a task
    first, second = clients.settings("a"), clients.settings("b")
    assert first["oauth_cb"] is second["oauth_cb"]
    assert (first["transactional.id"], second["transactional.id"]) == ("a", "b")


def test_what_nobody_can_decide_is_refused():
    task = Task("sink", 2, 7, "query")
    with (
        pytest.raises(SinkRefused, match=r"epoch 7, task 2 .* open in results-0, and nobody knows"),
        task.explaining(lambda: Patience(1)),
    ):
        raise Undecidable("results-0")


@pytest.mark.parametrize(
    ("row", "said"),
    [
        (Row(key="k"), "needs a column 'value'; the rows have key"),
        (Row(value=1, topic="t"), "must be string or binary, and has 1"),
        (Row(value="v", topic=None), "missing or null in a row"),
        (Row(value="v", topic="t", headers=[None]), "an element is null"),
    ],
)
def test_row_that_cannot_be_a_record(row, said):
    with pytest.raises(ValueError, match=said):
        record_of(row, None)


@pytest.mark.parametrize("source", [None, "in-0", Row(topic="in", partition=0)])
def test_source_that_is_no_place(source):
    with pytest.raises(ValueError, match="must have topic, partition and offset"):
        source_of(Row(value="v", source=source))


def test_source_partitions_of_different_sinks_have_different_ids():
    assert key_of("a/b", "c", 0) != key_of("a", "c", 0) == "a/c/0"


@pytest.mark.parametrize("seconds", [0, 60, 61])
def test_transactions_must_be_committed_before_kafka_aborts_them(seconds):
    with pytest.raises(ValueError, match="less than the 60 s"):
        RealTimeKafkaSink("a", "t", bootstrap_servers="127.0.0.1:1", commit_seconds=seconds)


def test_sink_is_copied_as_it_is(tmp_path):
    from pyspark import cloudpickle

    sink = RealTimeKafkaSink("a", "t", bootstrap_servers="127.0.0.1:1", points=TaskFaults(str(tmp_path)))
    copy = cloudpickle.loads(cloudpickle.dumps(sink))
    assert (copy.name, copy.topic, copy.points, copy.commit_seconds) == ("a", "t", sink.points, 30)
