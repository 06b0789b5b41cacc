import uuid
from dataclasses import replace

import pytest
from pyspark.errors import StreamingQueryException

from labs.equipment.topics import create_topic
from labs.evidence.checkpoint.checkpoint import CheckpointError, read_checkpoint
from labs.evidence.checkpoint.planned_results import planned_results, read_source_records
from labs.evidence.checkpoint.state_store import counts_in_flight, read_state
from labs.pipeline.log.generate import classroom
from labs.pipeline.log.replay import replay
from labs.pipeline.query import ip_count

pytestmark = pytest.mark.long

IN_FLIGHT = 4


@pytest.fixture(scope="module")
def source(broker):
    name = create_topic(broker.bootstrap_servers, f"test-{uuid.uuid4().hex}", 2)
    replay(classroom(windows=5), broker.bootstrap_servers, name)
    return name


@pytest.fixture(scope="module")
def start(spark, broker, source):
    """Return a function that starts `query` over the source."""

    def start(query, checkpoint, sink=lambda rows, batch_id: rows.collect()):
        records = ip_count.read_source(spark, broker.bootstrap_servers, source, records_per_batch=90)
        return ip_count.start_query(query(records), sink, str(checkpoint))

    return start


@pytest.fixture(scope="module")
def checkpoint(start, tmp_path_factory):
    """The checkpoint of the IP count, which crashed in batch 4 before that had computed anything."""

    def sink(rows, batch_id: int) -> None:
        if batch_id == IN_FLIGHT:
            raise RuntimeError("the crash")
        rows.write.format("noop").mode("overwrite").save()

    directory = tmp_path_factory.mktemp("state") / "checkpoint"
    with pytest.raises(StreamingQueryException, match="the crash"):
        start(ip_count.count_ips, directory, sink).awaitTermination()
    return directory


@pytest.mark.parametrize("batch_id", [None, 0, 1, 2, 3])
def test_the_state_holds_what_is_counted_and_not_yet_published(spark, broker, source, checkpoint, batch_id):
    last = IN_FLIGHT - 1 if batch_id is None else batch_id
    records = read_source_records(broker.bootstrap_servers, source)
    found = read_checkpoint(checkpoint)
    expected = planned_results(replace(found, batches=found.batches[: last + 1]), records).pending
    counts = counts_in_flight(spark, checkpoint, batch_id)
    assert list(counts.columns) == ["window_start", "ip", "count", "partition"]
    assert len(counts) == len(expected) >= 8
    assert {(row.window_start, row.ip): row.count for row in counts.itertuples(index=False, name="Row")} == expected
    assert set(counts.partition) == {0, 1}
    assert counts[["window_start", "ip"]].apply(tuple, axis=1).is_monotonic_increasing


def test_a_batch_in_flight_has_left_no_state_that_counts(spark, checkpoint):
    in_flight = read_checkpoint(checkpoint).in_flight
    assert in_flight is not None
    assert in_flight.state == {}
    with pytest.raises(CheckpointError, match="batch 4 is not committed; the last committed one is 3"):
        counts_in_flight(spark, checkpoint, IN_FLIGHT)


def test_no_committed_batch_is_no_state(spark, tmp_path):
    (tmp_path / "metadata").write_text('{"id": "x"}')
    with pytest.raises(CheckpointError, match="no batch is committed"):
        counts_in_flight(spark, tmp_path)


def test_a_query_that_remembers_nothing_has_no_state(spark, start, tmp_path):
    start(ip_count.rejected, tmp_path / "checkpoint").awaitTermination()
    with pytest.raises(CheckpointError, match="no stateful operator, since the query keeps no state"):
        counts_in_flight(spark, tmp_path / "checkpoint")


def test_the_state_of_another_query_is_named(spark, start, tmp_path):
    start(lambda records: records.select("partition").dropDuplicates(), tmp_path / "checkpoint").awaitTermination()
    said = "the state of another query than the IP count: key:struct<partition:int>"
    with pytest.raises(CheckpointError, match=said):
        counts_in_flight(spark, tmp_path / "checkpoint")
    assert {row.key.partition for row in read_state(spark, tmp_path / "checkpoint").collect()} == {0, 1}


def test_state_that_spark_has_deleted_is_a_clear_error(spark, checkpoint):
    (checkpoint / "state" / "0" / "0" / "1.delta").rename(checkpoint / "1.delta")
    try:
        with pytest.raises(CheckpointError, match="Spark cannot read the state of batch 0"):
            counts_in_flight(spark, checkpoint, 0)
    finally:
        (checkpoint / "1.delta").rename(checkpoint / "state" / "0" / "0" / "1.delta")
