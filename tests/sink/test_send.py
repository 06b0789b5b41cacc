"""Rows on their way from Spark to Kafka: bytes as Spark's own writer sends them, and nobody else held up."""

from __future__ import annotations

import socket
import tempfile
import threading
import uuid

import pytest
from confluent_kafka import KafkaException, Producer

from exactly_once_kafka import kafka_rows
from exactly_once_kafka.arrow_rows import ArrowRows
from exactly_once_kafka.deadline import Deadline
from exactly_once_kafka.errors import FENCED, BatchFailed, root_error
from exactly_once_kafka.kafka_rows import BatchRows, check_columns
from exactly_once_kafka.producer import send_rows
from exactly_once_kafka.producer_options import producer_settings
from labs.equipment.waiting import eventually
from labs.evidence.readers.results import read_committed

pytestmark = pytest.mark.long

HEADERS = "array<struct<key: string, value: binary>>"


@pytest.fixture
def in_transaction(broker):
    """Make a producer in an open transaction: `in_transaction(id)`."""

    def in_transaction(transactional_id: str | None = None, **options) -> Producer:
        settings = producer_settings(transactional_id or uuid.uuid4().hex, broker.bootstrap_servers, options)
        producer = Producer(settings)
        producer.init_transactions(30)
        producer.begin_transaction()
        return producer

    return in_transaction


def records(broker, topic):
    return read_committed(broker.bootstrap_servers, topic)


def test_another_job_of_the_application_goes_on_while_kafka_is_frozen(spark, broker, topic, in_transaction):
    results, producer = topic(), in_transaction(queue_buffering_max_messages=1000)
    rows = spark.range(200_000, numPartitions=2).selectExpr("repeat(string(id % 10), 200) AS value")
    sending = threading.Thread(
        target=send_rows, args=(BatchRows(rows, results), producer, Deadline(60), (), broker.pause)
    )
    job = threading.Thread(target=lambda: spark.range(1000).count())
    sending.start()
    try:
        eventually(lambda: len(producer) >= 1000, timeout=60)  # its queue is full: the sink waits for Kafka
        job.start()
        job.join(60)
        held_up = job.is_alive()
    finally:
        broker.resume()
    sending.join(60)
    assert not held_up
    producer.commit_transaction(30)
    assert len(records(broker, results)) == 200_000


def readers_of_spark() -> list[threading.Thread]:
    """Return the threads that still take rows from Spark."""
    return [thread for thread in threading.enumerate() if thread.name == "rows-from-spark"]


def test_rows_above_the_memory_bound_go_through_a_file_and_none_is_missing(spark):
    batches = iter(ArrowRows(spark.range(200_000, numPartitions=4), in_memory=100_000))
    first = next(batches)
    eventually(lambda: not readers_of_spark(), timeout=60)
    ids = first.column(0).to_pylist() + [n for batch in batches for n in batch.column(0).to_pylist()]
    assert sorted(ids) == list(range(200_000))


def test_query_that_fails_says_why_and_leaves_no_thread(spark):
    with pytest.raises(Exception, match="DIVIDE_BY_ZERO"):
        list(ArrowRows(spark.range(10).selectExpr("1 / (id - 5) AS value")))
    assert not readers_of_spark()


def test_rows_that_are_cut_off_are_not_taken_for_all(spark):
    rows = ArrowRows(spark.range(4_000_000, numPartitions=4))
    batches = iter(rows)
    next(batches)
    rows._connection.shutdown(socket.SHUT_RDWR)
    with pytest.raises(Exception, match=r".+"):
        list(batches)
    assert not readers_of_spark()


def test_strings_that_are_not_utf8_are_written_as_sparks_writer_writes_them(spark, broker, topic, in_transaction):
    ours, sparks, producer = topic(), topic(), in_transaction()
    rows = spark.sql(
        "SELECT CAST(X'ff41' AS STRING) AS value, CAST(X'fe' AS STRING) AS key, "
        "array(named_struct('key', CAST(X'fd42' AS STRING), 'value', X'fc')) AS headers"
    )
    send_rows(BatchRows(rows, ours), producer, Deadline(30))
    producer.commit_transaction(30)
    rows.write.format("kafka").options(**{"kafka.bootstrap.servers": broker.bootstrap_servers, "topic": sparks}).save()
    [ours], [sparks] = records(broker, ours), records(broker, sparks)
    assert (ours.key(), ours.value()) == (sparks.key(), sparks.value()) == (b"\xfe", b"\xffA")
    assert ours.headers() == sparks.headers() == [("\ufffdB", b"\xfc")]


@pytest.fixture
def at_most_a_megabyte(spark):
    """Let Spark hand no more than that to its driver."""
    settings = spark.sparkContext._jsc.sc().conf()  # read anew for each stage
    settings.set("spark.driver.maxResultSize", "1m")
    yield
    settings.remove("spark.driver.maxResultSize")


def test_batch_above_what_spark_lets_through_its_driver_names_the_setting(spark, at_most_a_megabyte):
    with pytest.raises(BatchFailed, match=r"larger than .* spark\.driver\.maxResultSize \(1g"):
        list(ArrowRows(spark.range(300_000, numPartitions=2)))


def test_batch_that_the_temporary_directory_does_not_take_says_so(spark, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", "/nowhere")
    rows = ArrowRows(spark.range(300_000, numPartitions=2), in_memory=10)
    eventually(lambda: not readers_of_spark(), timeout=60)
    with pytest.raises(BatchFailed, match=r"temporary directory: .*/nowhere.*set TMPDIR"):
        list(rows)


@pytest.mark.parametrize(("rows", "for_driver"), [(0, True), (1, True), (100, True), (101, False), (100_000, False)])
def test_rows_are_computed_for_the_driver_if_they_are_few(spark, rows, for_driver):
    batches = BatchRows(spark.range(rows, numPartitions=3).selectExpr("string(id) AS value"), "anywhere")
    batches.begin_if_few(100)
    assert batches.begun == for_driver
    assert sum(batch.num_rows for batch in batches) == rows  # none is left out, either way


def test_few_rows_that_are_too_large_for_the_driver_are_left_to_the_executors(spark, at_most_a_megabyte):
    batches = BatchRows(spark.range(3, numPartitions=3).selectExpr("repeat('x', 600000) AS value"), "anywhere")
    batches.begin_if_few(100)
    assert not batches.begun


def test_few_rows_that_are_more_than_the_driver_holds_are_left_to_the_executors(spark, monkeypatch):
    monkeypatch.setattr(kafka_rows, "IN_MEMORY", 1_000_000)
    batches = BatchRows(spark.range(3, numPartitions=3).selectExpr("repeat('x', 600000) AS value"), "anywhere")
    batches.begin_if_few(100)
    assert not batches.begun
    assert not readers_of_spark()


def test_query_that_fails_while_spark_looks_for_few_rows_fails_again(spark):
    batches = BatchRows(spark.range(3).selectExpr("raise_error('broken') AS value"), "anywhere")
    batches.begin_if_few(100)
    assert not batches.begun
    with pytest.raises(Exception, match="broken"):
        list(batches)


@pytest.mark.parametrize(
    ("row", "complaint"),
    [
        (("v", [(None, b"1")], "t"), "a header's key is null"),
        (("v", [None], "t"), "'headers': an element is null"),
        (("v", [], None), "column 'topic' is null"),
    ],
)
def test_null_where_kafka_knows_none_fails_the_batch_and_names_the_column(spark, in_transaction, row, complaint):
    rows = spark.createDataFrame([row], f"value string, headers {HEADERS}, topic string")
    with pytest.raises(ValueError, match=complaint):
        send_rows(BatchRows(rows, None), in_transaction(), Deadline(30))


@pytest.mark.parametrize(
    ("columns", "complaint"),
    [
        ("map('k', 'v') AS headers", r"'headers' must be array<struct<key:string,value:binary>>, and is map"),
        ("array(struct('k' AS name, X'00' AS value)) AS headers", "and is array<struct<name:string,value:binary>>"),
        ("array(struct('k' AS key, 'v' AS value)) AS headers", "and is array<struct<key:string,value:string>>"),
        ("id AS partition", "'partition' must be int, and is bigint: cast it"),
        ("'0' AS partition", "'partition' must be int, and is string"),
        ("id AS topic", "'topic' must be string, and is bigint"),
        ("'k' AS Key", "'Key' would not reach Kafka, where it is 'key'"),
        ("id AS key", "'key' must be string or binary, and is bigint"),
    ],
)
def test_column_of_a_type_that_sparks_writer_refuses_is_refused_by_name(spark, columns, complaint):
    with pytest.raises(ValueError, match=complaint):
        check_columns(
            spark.range(1).selectExpr("'v' AS value", "'t' AS topic", columns).toDF(*_last_wins(columns)), None
        )


def _last_wins(columns: str) -> list[str]:
    name = columns.rpartition(" ")[2]
    return ["value", "topic" if name != "topic" else "other", name]


@pytest.mark.parametrize(("rows", "late"), [(1, False), (30_000, False), (30_000, True)])
def test_fenced_in_the_middle_of_a_batch_is_said_to_be_fenced(spark, topic, in_transaction, rows, late):
    name, results = uuid.uuid4().hex, topic()
    producer, newer, deadline = in_transaction(name), [], Deadline(30)

    def fence():
        newer.append(in_transaction(name))

    values = spark.range(rows).selectExpr("string(id) AS value")

    def publish():
        with root_error(producer, results):
            send_rows(BatchRows(values, results), producer, deadline, (), fence if late else None)
            producer.commit_transaction(30)  # whichever of the two hears of it

    if not late:
        fence()
    with pytest.raises(KafkaException) as failed:
        publish()
    assert failed.value.args[0].code() in FENCED
