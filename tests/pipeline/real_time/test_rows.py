"""Rows as Python's `foreach` gets them, and their places in the source: nothing is started here."""

from __future__ import annotations

import pytest
from pyspark import cloudpickle
from pyspark.sql import Row

from exactly_once_kafka.errors import OutcomeUnknown, SinkRefused
from labs.faults.fault_points import TaskFaults
from labs.pipeline.sinks.real_time_sink import Place, RealTimeKafkaSink, SourceRows, Task, by_place

NOBODY = "127.0.0.1:1"


def row(offset: int, topic: str = "in", partition: int = 0) -> Row:
    return Row(value="v", source=Row(topic=topic, partition=partition, offset=offset))


def test_rows_of_one_record_are_counted_from_one():
    rows = SourceRows(epoch=5)
    places = [rows.placed(row(offset)).place for offset in (3, 3, 3, 7)]
    assert places == [(5, 3, 1), (5, 3, 2), (5, 3, 3), (5, 7, 1)]


def test_row_was_published_if_it_does_not_lie_beyond_the_marker_whatever_the_epochs_are_called():
    marker = Place(9, 3, 2)
    assert [by_place(Place(1, *each), marker) for each in ((2, 5), (3, 2), (3, 3), (4, 1))] == [
        True,
        True,
        False,
        False,
    ]
    assert not by_place(Place(0, 0, 1), None)


def test_row_becomes_a_record():
    source = Row(topic="in", partition=2, offset=0)
    assert SourceRows(0).placed(Row(key="k", value=bytearray(b"v"), source=source)) == (
        ("in", 2),
        (0, 0, 1),
        b"k",
        b"v",
    )
    assert SourceRows(0).placed(Row(value=None, source=source))[2:] == (None, None)


def test_offset_that_goes_back_is_refused():
    rows = SourceRows(0)
    rows.placed(row(7))
    with pytest.raises(ValueError, match="offset 3 came after one of 7"):
        rows.placed(row(3))


@pytest.mark.parametrize("other", [row(8, partition=1), row(8, topic="other")])
def test_rows_of_two_source_partitions_in_one_task_are_refused(other):
    rows = SourceRows(0)
    rows.placed(row(7))
    with pytest.raises(ValueError, match="expected those of one partition"):
        rows.placed(other)


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        (Row(key="k", source=None), "the columns key, source; expected value, source"),
        (Row(value="v"), "the columns value; expected value, source"),
        (Row(value="v", source=None, headers=[]), "the columns value, source, headers; expected"),
        (Row(value=1, source=None), "must be string or binary, and has 1"),
        (Row(value="v", source=None), "must have topic, partition and offset"),
        (Row(value="v", source="in-0"), "must have topic, partition and offset"),
        (Row(value="v", source=Row(topic="in", partition=0)), "must have topic, partition and offset"),
    ],
)
def test_row_that_cannot_be_published(wrong, said):
    with pytest.raises(ValueError, match=said):
        SourceRows(0).placed(wrong)


def test_sink_is_copied_as_it_is(tmp_path):
    sink = RealTimeKafkaSink("a", "t", bootstrap_servers=NOBODY, points=TaskFaults(str(tmp_path)))
    assert vars(cloudpickle.loads(cloudpickle.dumps(sink))) == vars(sink)


@pytest.mark.parametrize(("name", "topic"), [("", "t"), ("a/b", "t"), ("a", "t t")])
def test_name_or_topic_that_cannot_be_used_is_refused_when_the_sink_is_made(name, topic):
    with pytest.raises(ValueError, match="expected"):
        RealTimeKafkaSink(name, topic, bootstrap_servers=NOBODY)


def test_sink_outside_of_a_streaming_query_is_refused():
    with pytest.raises(SinkRefused, match="the task has no id of a streaming query"):
        RealTimeKafkaSink("a", "t", bootstrap_servers=NOBODY).open(0, 1)


def test_what_nobody_can_decide_is_refused():
    sink = RealTimeKafkaSink("a", "t", bootstrap_servers=NOBODY)
    sink._task = Task("a", 2, 7, "query")
    with pytest.raises(SinkRefused, match=r"epoch 7, task 2 .* open in results-0, and no longer"), sink._explained():
        raise OutcomeUnknown("results-0")
