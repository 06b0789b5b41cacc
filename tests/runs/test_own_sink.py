"""A student's sink among the stages: its points are where the lesson says, and it is handed what the lesson wrote."""

from __future__ import annotations

from typing import Any

import pytest

from labs.runs.own_sink import OwnStage

NO_ROWS: Any = []


class Producer:
    """Notes what is done to it."""

    def __init__(self, told):
        self.told = told

    def produce(self, topic, value, headers):
        assert dict(headers).keys() == {"batch_id", "attempt"}
        self.told.append(value)

    def __getattr__(self, name):
        return lambda *_: self.told.append(name)


def publish(rows, batch_id, kafka):
    if kafka.last_batch() == batch_id:
        return
    producer = kafka.new_producer()
    producer.begin_transaction()
    for row in rows:
        producer.produce(kafka.topic, row)
    kafka.mark(batch_id, producer)
    producer.commit_transaction()


@pytest.fixture
def told():
    return []


@pytest.fixture
def stage(told):
    return OwnStage(
        publish,
        new_producer=lambda name: told.append(name) or Producer(told),
        last_batch=lambda name, topic: 5,
        mark=lambda name, topic, batch_id, producer: told.append(f"mark {batch_id}"),
    )


def test_the_points_lie_around_the_calls_of_the_producer(stage, told):
    sink = stage.make_sink("results", "nowhere:1", lambda point, batch: told.append((point, batch)))
    sink(["a", "b", "c"], 6)
    assert told == [
        ("before_fence", 6),
        "sink-of-results",
        ("before_rows", 6),
        "begin_transaction",
        "a",
        "flush",
        ("mid_rows", 6),
        "b",
        "c",
        "mark 6",
        ("before_commit", 6),
        "commit_transaction",
        ("after_commit", 6),
        ("before_checkpoint", 6),
    ]
    assert not stage.found(6)


def test_a_producer_that_is_kept_passes_the_points_of_each_batch(stage):
    kept: list[Any] = []
    reached: list[tuple[str, int]] = []
    rows: Any = ["a", "b"]

    def keeps_one_producer(rows, batch_id, kafka):
        if not kept:
            kept.append(kafka.new_producer())
        kept[0].begin_transaction()
        for row in rows:
            kept[0].produce(kafka.topic, row)
        kept[0].commit_transaction()

    keeps = OwnStage(keeps_one_producer, stage.new_producer)
    sink = keeps.make_sink("results", "nowhere:1", lambda point, batch: reached.append((point, batch)))
    for batch_id in (5, 6):
        sink(rows, batch_id)
    of_each = ["before_rows", "mid_rows", "before_commit", "after_commit", "before_checkpoint"]
    assert reached == [("before_fence", 5), *((point, batch) for batch in (5, 6) for point in of_each)]


def test_a_batch_that_finds_its_own_marker_is_known(stage):
    stage.make_sink("results", "nowhere:1", lambda point, batch: None)(["a"], 5)
    assert stage.found(5)


def test_a_mark_outside_of_a_transaction_is_refused(stage):
    def marks_at_once(rows, batch_id, kafka):
        kafka.mark(batch_id)

    sink = OwnStage(marks_at_once, stage.new_producer, stage.last_batch, stage.mark).make_sink
    with pytest.raises(TypeError, match="part of a transaction"):
        sink("results", "nowhere:1", lambda point, batch: None)(NO_ROWS, 0)


def test_a_sink_without_a_marker_cannot_ask_for_one():
    with pytest.raises(TypeError, match="in their order"):
        OwnStage(publish, lambda name: None).make_sink("results", "nowhere:1", lambda point, batch: None)(NO_ROWS, 0)
