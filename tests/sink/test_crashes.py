"""The exactly-once sink, crashed in one living session at every point; and which rows it takes."""

from __future__ import annotations

import pytest
from pyspark.errors import StreamingQueryException

from exactly_once_kafka.sink import WRITERS, ExactlyOnceKafkaSink
from labs.evidence.readers.results import read_committed
from labs.evidence.readers.transactions import wait_until_ended
from labs.faults.fault_points import Fault
from labs.faults.supervisor import Supervisor
from tests.sink.conftest import headers_of, numbers_in
from tests.sink.mutants import NoMarker, SkipsWithoutDraining

pytestmark = pytest.mark.bench

BATCHES = range(3, 6)  # three batches that have results
# Few rows, which the driver writes in either case. Executors: see test_executors.
of_the_driver = pytest.mark.parametrize("writers", WRITERS, ids=["driver", "small batch"])


def crash_every_batch(run, sink, point):
    with sink.points.armed(*[Fault(point, batch) for batch in BATCHES]) as struck:
        Supervisor(lambda attempt: run(sink), restarts=len(BATCHES), delay=0, report=lambda _: None).run()
    assert len(struck) == len(BATCHES)


@pytest.mark.parametrize("writers", ["driver", pytest.param("executors", marks=pytest.mark.long)])
def test_query_with_state_that_is_crashed_after_each_commit_neither_loses_nor_doubles(run, sink_for, audited, writers):
    """Every point of every sink, but with no state to be moved on, is crashed in test_contract."""
    sink = sink_for(writers=writers, driver_rows=0)
    crash_every_batch(run, sink, "after_commit")
    assert audited(sink).valid, audited(sink)


@pytest.mark.long
@pytest.mark.parametrize("point", ["before_commit", "after_commit"])
def test_writers_may_change_between_two_runs(copy, sink_for, point):
    to = None
    for batch, writers in enumerate(WRITERS):
        sink = sink_for(to=to, writers=writers, driver_rows=0)
        to = sink.topic
        with sink.points.armed(Fault(point, batch)), pytest.raises(StreamingQueryException, match="crashed on purpose"):
            copy(sink)
    copy(sink_for(to=to))
    assert copy.published(sink) == list(range(30))


def test_mutant_without_marker_doubles_after_a_crash_after_commit(run, sink_for, audited):
    sink = sink_for(NoMarker)
    crash_every_batch(run, sink, "after_commit")
    assert audited(sink).duplicated == 8 * len(BATCHES)


def test_mutant_that_skips_without_draining_breaks_the_state(run, sink_for, audited):
    sink = sink_for(SkipsWithoutDraining)
    with sink.points.armed(Fault("after_commit", 4)), pytest.raises(StreamingQueryException):
        run(sink)
    with pytest.raises(StreamingQueryException) as failure:  # Spark misses the state version that was skipped
        run(sink)
    assert "InjectedCrash" not in str(failure.value)
    assert audited(sink).lost


@pytest.mark.long
@pytest.mark.parametrize("writers", WRITERS)
def test_transaction_timeout_shorter_than_a_batch_fails_the_batch_and_names_the_setting(
    run, sink_for, audited, broker, writers
):
    sink = sink_for(transaction_timeout_ms=5000, writers=writers, driver_rows=0)

    class OutliveTheTimeout:
        point, batch = "before_commit", 4

        def strike(self):
            wait_until_ended(broker.bootstrap_servers, sink.name, timeout=60)

    with (
        sink.points.armed(OutliveTheTimeout()),
        pytest.raises(StreamingQueryException, match=r"transaction\.timeout\.ms is 5000"),
    ):
        run(sink)
    run(sink := sink_for(to=sink.topic, writers=writers, driver_rows=0))
    assert audited(sink).valid


@pytest.mark.parametrize("writers", WRITERS)
def test_row_that_kafka_does_not_accept_fails_the_whole_batch(spark, publish_rows, sink_for, broker, writers):
    sink = sink_for(message_max_bytes=5_000_000, writers=writers, driver_rows=0)
    rows = spark.createDataFrame([("small",), ("x" * 2_000_000,), ("also small",)], "value string")
    with pytest.raises(StreamingQueryException, match="is larger than the topic's max"):
        publish_rows(sink, rows)
    # By the sink: after its timeout, a minute, Kafka would do it.
    assert not wait_until_ended(broker.bootstrap_servers, sink.name, timeout=30).open
    assert read_committed(broker.bootstrap_servers, sink.topic) == []


@of_the_driver
def test_keys_values_headers_partitions_and_topics_are_as_in_sparks_writer(spark, publish_rows, broker, topic, writers):
    one, two = topic(partitions=3), topic()
    row = "key string, value binary, partition int, topic string, headers array<struct<key: string, value: binary>>"
    rows = spark.createDataFrame(
        [
            ("k", b"v", 2, one, [("h", b"1")]),
            (None, b"w", None, two, None),
            (None, None, 0, one, []),
        ],
        row,
    )
    options = {"bootstrap_servers": broker.bootstrap_servers, "writers": writers, "batch_headers": False}
    publish_rows(ExactlyOnceKafkaSink(f"to-{one}", **options), rows)
    found = {
        (m.topic(), m.partition(), m.key(), m.value(), tuple(m.headers() or ()))
        for t in (one, two)
        for m in read_committed(broker.bootstrap_servers, t)
    }
    assert found == {
        (one, 2, b"k", b"v", (("h", b"1"),)),
        (two, 0, None, b"w", ()),
        (one, 0, None, None, ()),
    }


@of_the_driver
def test_every_record_says_its_batch_and_the_last_how_many_there_are(spark, publish_rows, broker, sink_for, writers):
    sink = sink_for(writers=writers)
    publish_rows(sink, spark.range(100).selectExpr("string(id) as value"))
    headers = [dict(headers_of(m)) for m in read_committed(broker.bootstrap_servers, sink.topic)]
    assert {h["batch_id"] for h in headers} == {b"0"}
    assert len({h["attempt"] for h in headers}) == 1
    assert [h["batch_rows"] for h in headers if "batch_rows" in h] == [b"100"]


@of_the_driver
def test_keys_go_to_the_partitions_that_sparks_writer_chooses(spark, publish_rows, broker, topic, writers):
    ours, sparks = topic(partitions=5), topic(partitions=5)
    rows = spark.range(200).selectExpr("string(id) as key", "string(id) as value")
    options = {"bootstrap_servers": broker.bootstrap_servers, "writers": writers}
    publish_rows(ExactlyOnceKafkaSink(f"p-{ours}", ours, **options), rows)
    options = {"kafka.bootstrap.servers": broker.bootstrap_servers, "topic": sparks}
    rows.write.format("kafka").options(**options).save()
    placed = [{m.key(): m.partition() for m in read_committed(broker.bootstrap_servers, t)} for t in (ours, sparks)]
    assert placed[0] == placed[1]


def test_any_streaming_dataframe_with_a_value_column_will_do(spark, broker, sink_for, tmp_path):
    sink = sink_for()
    stream = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 25).load()
    query = (
        stream.selectExpr("string(value) AS value")
        .writeStream.option("checkpointLocation", str(tmp_path / "any"))
        .foreachBatch(sink)
        .start()
    )
    from labs.equipment.waiting import eventually

    eventually(lambda: query.lastProgress and query.lastProgress.batchId >= 3)
    query.stop()
    values = numbers_in(broker.bootstrap_servers, sink.topic)
    assert len(values) >= 75
    assert sorted(values) == list(range(len(values)))


@pytest.mark.parametrize(
    ("columns", "complaint"),
    [("id", "needs a column 'value'"), ("id as value", "must be string or binary")],
)
def test_rows_that_cannot_be_records_are_refused(spark, sink_for, columns, complaint):
    with pytest.raises(ValueError, match=complaint):
        sink_for()(spark.range(3).selectExpr(columns), 0)


@pytest.mark.parametrize(
    ("option", "complaint"),
    [
        ({"transactional_id": "mine"}, "cannot be set"),
        ({"no_such_option": 1}, "not usable"),
        ({"sasl_jaas_config": "x"}, "Java client"),
        ({"marker_topic": "mine/yours"}, "not a name of a Kafka topic"),
    ],
)
def test_option_that_would_break_the_protocol_is_refused(sink_for, option, complaint):
    with pytest.raises(ValueError, match=complaint):
        sink_for(**option)
