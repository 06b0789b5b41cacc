"""What sinks leave behind when their queries have ended, and what a foreachBatch function may do around a sink."""

from __future__ import annotations

import gc
import uuid
import weakref

import psutil
import pytest
from pyspark.errors import StreamingQueryException

from exactly_once_kafka.deadline import Deadline
from exactly_once_kafka.errors import BatchFailed
from exactly_once_kafka.executors.transport import ExecutorsTransport
from exactly_once_kafka.marker_store import MarkerStore
from exactly_once_kafka.sink import ExactlyOnceKafkaSink
from labs.equipment.waiting import eventually
from tests.sink.conftest import Copying

EVERY = list(range(30))
LIKE_A_RUN = "0d1e2f3a-4b5c-4d6e-8f70-18293a4b5c6d"
EVEN = "int(string(value)) % 2 = 0"


def threads() -> int:
    return psutil.Process().num_threads()


@pytest.fixture
def new_copy(spark, broker, numbers, tmp_path):
    """Copy the numbers from a checkpoint of its own."""
    return lambda: Copying(spark, broker.bootstrap_servers, numbers, tmp_path / uuid.uuid4().hex)


@pytest.mark.long
@pytest.mark.parametrize("writers", ["driver", "executors"])
def test_sinks_whose_queries_have_ended_leave_no_threads(new_copy, sink_for, writers):
    kept = []

    def run(times: int) -> None:
        for _ in range(times):
            kept.append(sink_for(writers=writers))  # as Spark keeps it
            copy = new_copy()
            copy(kept[-1])
            assert copy.published(kept[-1]) == EVERY

    run(2)
    before = threads()
    run(4)
    eventually(lambda: threads() <= before + 10, timeout=60)  # Spark may have begun some; four sinks have 28


@pytest.mark.long
def test_sink_that_has_rested_goes_on_where_it_was(copy, new_copy, sink_for, calls_of):
    rested = calls_of(MarkerStore, "disconnect")
    first, second = sink_for(), sink_for()
    with pytest.raises(StreamingQueryException, match="amid the query"):
        copy(lambda rows, n: first(rows, n) if n < 2 else failing())
    new_copy()(second)
    eventually(lambda: (first._store,) in rested, timeout=60)
    copy(first)
    assert copy.published(first) == EVERY


def failing():
    raise RuntimeError("amid the query")


@pytest.mark.long
def test_marker_store_that_is_dropped_is_gone_at_once(broker, topic):
    gc.collect()
    gc.disable()
    try:
        store = MarkerStore("nobody", topic(cleanup_policy="compact"), broker.bootstrap_servers, {})
        assert store.read(Deadline(60)) is None
        assert store.topic.id(Deadline(60))
        left, before = weakref.ref(store), threads()
        del store
        assert left() is None
        eventually(lambda: threads() < before, timeout=60)
    finally:
        gc.enable()


@pytest.mark.bench
@pytest.mark.parametrize("writers", ["driver", "executors"])
def test_other_part_of_a_batch_is_refused_and_not_left_out_nor_after_a_restart(copy, sink_for, writers):
    sink = sink_for(writers=writers)

    def by_parts(rows, batch_id):
        sink(rows.where(EVEN), batch_id)
        sink(rows.where(f"NOT {EVEN}"), batch_id)

    for _ in range(2):
        with pytest.raises(StreamingQueryException, match="received other rows of it before"):
            copy(by_parts)
    ExactlyOnceKafkaSink._delivered.clear()  # as in a new process
    with pytest.raises(StreamingQueryException, match="neither a restart nor a corrected query publishes"):
        copy(by_parts)
    assert copy.published(sink) == [n for n in EVERY[:10] if n % 2 == 0]


@pytest.mark.bench
@pytest.mark.parametrize("groups", [("etl", "etl"), (LIKE_A_RUN, LIKE_A_RUN[::-1])])
def test_other_part_of_a_batch_is_refused_though_its_job_group_is_somebody_elses(copy, sink_for, groups):
    sink = sink_for()

    def by_parts(rows, batch_id):
        for group, part in zip(groups, (EVEN, f"NOT {EVEN}"), strict=True):
            rows.sparkSession.sparkContext.setJobGroup(group, "as the UI shows it")
            sink(rows.where(part), batch_id)

    with pytest.raises(StreamingQueryException, match="received other rows of it before"):
        copy(by_parts)


@pytest.mark.bench
def test_other_part_of_a_batch_is_refused_though_another_sink_has_the_name(copy, sink_for):
    sink = sink_for()
    twin = sink_for(to=sink.topic)

    def by_two(rows, batch_id):
        sink(rows.where(EVEN), batch_id)
        twin(rows.where(f"NOT {EVEN}"), batch_id)

    with pytest.raises(StreamingQueryException, match="received other rows of it before"):
        copy(by_two)


@pytest.mark.bench
def test_the_same_rows_may_be_handed_over_again(copy, sink_for):
    sink = sink_for()

    def tried_twice(rows, batch_id):
        for _ in range(2):
            sink(rows.where("value IS NOT NULL"), batch_id)  # each time another DataFrame, of the same rows

    copy(tried_twice)
    assert copy.published(sink) == EVERY


@pytest.mark.long
@pytest.mark.parametrize("group", ["etl", LIKE_A_RUN])
def test_job_group_of_somebody_elses_does_not_make_a_new_run_the_old_one(copy, sink_for, group):
    """Spark keeps the run's id there; the sink takes it for a run's id no longer, and asks who runs each time."""
    sink, seen = sink_for(), list[bool]()

    def grouped(rows, batch_id):
        rows.sparkSession.sparkContext.setJobGroup(group, "as the UI shows it")
        sink.batch_of(rows, batch_id)
        seen.append(sink.query.stopped())
        sink(rows, batch_id)
        if len(seen) == 1:
            failing()

    with pytest.raises(StreamingQueryException, match="amid the query"):
        copy(grouped)
    copy(grouped)
    assert copy.published(sink) == EVERY
    assert len(seen) > 3
    assert not any(seen)


@pytest.mark.long
@pytest.mark.parametrize("error", [TimeoutError, BatchFailed])
def test_batch_that_failed_is_begun_as_if_nothing_were_known(copy, sink_for, monkeypatch, error):
    def too_slow(*_):
        raise error("too slow")

    sink, clusters = sink_for(writers="executors"), []

    def fails(rows, batch_id):
        if batch_id == 1:
            assert not sink.transport.next_batch.first_limit  # it has seen a small batch
            clusters.append(sink.transport.coordinator.cluster)
            monkeypatch.setattr(ExecutorsTransport, "rows", too_slow)
        sink(rows, batch_id)

    with pytest.raises(StreamingQueryException, match="too slow"):
        copy(fails)
    assert sink.transport.next_batch.first_limit
    assert sink.transport.coordinator.cluster is not clusters.pop()  # it asks the addresses that it was given, too
    monkeypatch.undo()
    copy(sink)
    assert copy.published(sink) == EVERY
