"""What Kafka leaves open of a real-time task's transaction is ended as the transaction was, before the next one."""

from __future__ import annotations

import uuid
from collections.abc import Callable

import pytest

from exactly_once_kafka.deadline import Deadline
from labs.equipment.broker import Broker
from labs.pipeline.sinks.real_time_sink import (
    Place,
    PlacedRow,
    Publisher,
    Task,
    by_place,
    make_marker_topics,
    marker_topics,
)
from tests.sink.conftest import numbers_in
from tests.sink.test_executors_on_three_brokers import SETTINGS
from tests.sink.test_open_transaction_repair import Leaderless, fail

ROWS = 30
SOURCE = "source", 0
pytestmark = [pytest.mark.long, pytest.mark.timeout(600)]


@pytest.fixture(scope="module")
def kafka():
    with Broker(nodes=3, settings=SETTINGS) as cluster:
        yield cluster


class Source:
    """A partition of a source, read in epochs, whose records go to the only partition of a topic."""

    def __init__(self, kafka: Broker):
        self.servers, self.name = kafka.bootstrap_servers, f"open-{uuid.uuid4().hex[:8]}"
        self.of_rows = Leaderless.new(kafka, self.name, partitions=1)
        marker, *_ = marker_topics(self.name)
        self.of_marker = Leaderless.new(kafka, marker, partitions=1, cleanup_policy="compact")
        make_marker_topics(self.name, self.servers, Deadline(60))

    def read_on(self, epoch: int, offsets: range, **strikes: Callable[[], object]) -> None:
        def strike(point: str, _: int) -> None:
            strikes.get(point, lambda: None)()

        rows = [PlacedRow(SOURCE, Place(epoch, offset, 1), None, str(offset).encode()) for offset in offsets]
        publisher = Publisher(Task(self.name, 0, epoch, "query"), SOURCE, self.name, self.servers, by_place, strike)
        publisher.begin(Deadline(60))
        publisher.publish(rows, Deadline(60))

    def published(self) -> list[int]:
        return sorted(numbers_in(self.servers, self.name))


@pytest.fixture
def source(kafka):
    return Source(kafka)


@pytest.mark.parametrize("which", ["rows", "marker"])
def test_what_is_committed_where_nobody_leads_is_not_lost_with_the_next_epoch(source, which):
    leaderless = source.of_rows if which == "rows" else source.of_marker
    source.read_on(0, range(ROWS), before_commit=leaderless.begin, after_commit=leaderless.end)
    with pytest.raises(TimeoutError, match="as if"):
        source.read_on(1, range(ROWS, 2 * ROWS), before_commit=fail)
    source.read_on(1, range(ROWS - 5, 2 * ROWS))
    assert source.published() == list(range(2 * ROWS))


def test_what_is_aborted_where_nobody_leads_does_not_come_with_the_next_epoch(source):
    def fail_leaderless() -> None:
        source.of_rows.begin()
        fail()

    with pytest.raises(TimeoutError, match="as if"):
        source.read_on(0, range(ROWS), before_commit=fail_leaderless)
    source.of_rows.end()
    source.read_on(0, range(ROWS))
    assert source.published() == list(range(ROWS))
