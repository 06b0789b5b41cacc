"""The sink with the executors writing: whatever breaks, each row is there once, and as Spark's writer writes it.

Executors in processes of their own: see test_executors_on_a_cluster.
"""

from __future__ import annotations

import re
import shutil
import tempfile
import threading
import time
import uuid
import weakref
from typing import Any

import pyarrow
import pytest
from kafka.protocol.producer.produce import ProduceRequest
from pyspark import TaskContext
from pyspark.errors import StreamingQueryException

from exactly_once_kafka.deadline import Deadline
from exactly_once_kafka.driver_transport import DriverTransport
from exactly_once_kafka.executors import choose_writer, partitioner
from exactly_once_kafka.executors.transport import ExecutorsTransport
from exactly_once_kafka.kafka_client.cluster import Cluster
from exactly_once_kafka.kafka_client.settings import kafka_python_settings
from exactly_once_kafka.kafka_client.transaction_coordinator import Coordinator
from exactly_once_kafka.kafka_rows import BatchRows
from exactly_once_kafka.producer import PendingProducer
from exactly_once_kafka.producer_options import producer_settings
from exactly_once_kafka.sink import WRITERS, ExactlyOnceKafkaSink
from labs.equipment.broker import Broker
from labs.equipment.topics import admin, create_topic
from labs.equipment.waiting import eventually
from labs.evidence.readers.results import read_committed
from labs.evidence.readers.transactions import wait_until_ended
from labs.faults.fault_points import Fault, FaultPoints
from labs.faults.proxy import Request, proxied_broker
from labs.faults.supervisor import Supervisor
from tests.sink.conftest import headers_of, numbers_in
from tests.sink.mutants import NoMarker

ROWS, BATCHES = 200, 5
HEADERS = "array<struct<key: string, value: binary>>"
BY_EXECUTORS: dict[str, Any] = {"writers": "executors", "driver_rows": 0}
pytestmark = pytest.mark.timeout(600)


@pytest.fixture(scope="module")
def kafka():
    with proxied_broker() as kafka:
        yield kafka


class Copy:
    """Copies numbers through the sink, ROWS in a batch, from a checkpoint of its own to a topic of its own."""

    def __init__(self, spark, servers, partitions, driver_rows=0, columns=("string(value % 50) AS key",)):
        self._driver_rows, self._columns = driver_rows, columns
        self._spark, self.servers, self._checkpoint = spark, servers, tempfile.mkdtemp(prefix="labs-checkpoint-")
        weakref.finalize(self, shutil.rmtree, self._checkpoint, True)
        self.topic = create_topic(servers, f"copy-{uuid.uuid4().hex[:8]}", partitions)
        self.points = FaultPoints()

    def sink(self, kind=ExactlyOnceKafkaSink, **options):
        ours = {"driver_rows": self._driver_rows, "points": self.points, "bootstrap_servers": self.servers}
        options = ours | options
        return kind(self.topic, self.topic, **options)

    def once(self, sink):
        """Run until all batches are done. Raises StreamingQueryException."""
        stream = self._spark.readStream.format("rate-micro-batch")
        stream = stream.option("rowsPerBatch", ROWS).option("numPartitions", 3).load()
        rows = stream.selectExpr(*self._columns, "string(value) AS value")
        rows = rows.where(f"value < {ROWS * BATCHES}")
        query = rows.writeStream.option("checkpointLocation", self._checkpoint).foreachBatch(sink).start()
        try:
            eventually(
                lambda: query.exception() or (query.lastProgress or {"batchId": 0})["batchId"] >= BATCHES, timeout=120
            )
            if query.exception():
                query.awaitTermination()
        finally:
            query.stop()

    def run(self, *faults, kind=ExactlyOnceKafkaSink, **options):
        """Run until all is done, a new sink after each failure; return how many failures there were."""
        with self.points.armed(*faults) as struck:
            again = Supervisor(lambda _: self.once(self.sink(kind, **options)), restarts=3, delay=0, report=print)
            attempts = again.run()
        assert len(struck) == len(faults)
        assert not any(isinstance(attempt.error, TimeoutError) for attempt in attempts), "it hung"
        return len(attempts) - 1

    def published(self):
        return sorted(numbers_in(self.servers, self.topic))


ALL = list(range(ROWS * BATCHES))


@pytest.fixture(params=[(1, 0), (4, 0), (4, ROWS)], ids=["one partition", "four partitions", "small batches"])
def copy(spark, kafka, request):
    partitions, driver_rows = request.param
    return Copy(spark, kafka[0].bootstrap_servers, partitions, driver_rows)


@pytest.fixture
def small(spark, kafka):
    return Copy(spark, kafka[0].bootstrap_servers, 4, driver_rows=ROWS)


@pytest.fixture
def to_four(spark, kafka):
    return Copy(spark, kafka[0].bootstrap_servers, 4)


class At:
    """Do something when a batch comes to a point."""

    def __init__(self, point, batch, strike):
        self.point, self.batch, self.strike = point, batch, strike


@pytest.mark.long
def test_batch_that_is_handed_over_twice_is_published_once_though_spark_computes_ahead(small):
    sink = small.sink()

    def twice(rows, number):
        sink(rows, number)
        sink(rows, number)

    small.once(twice)
    assert small.published() == ALL


@pytest.mark.long
def test_batch_refused_while_spark_computes_ahead_is_not_published_and_nothing_is_left_behind(small, calls_of):
    begun, sink = calls_of(BatchRows, "begin"), small.sink()

    def leaving_one_out(rows, number):
        if number != 3:
            sink(rows, number)

    with pytest.raises(StreamingQueryException, match="refuses batch 4"):
        small.once(leaving_one_out)
    assert len({id(rows) for [rows] in begun}) == 4  # batches 0, 1, 2 and 4
    assert small.published() == ALL[: 3 * ROWS]
    assert not [thread for thread in threading.enumerate() if thread.name == "rows-from-spark"]


@pytest.mark.bench
@pytest.mark.parametrize("point", [pytest.param("mid_rows", marks=pytest.mark.long), "after_commit"])
def test_crash_neither_loses_nor_doubles_where_each_partition_has_a_writer(to_four, point):
    assert to_four.run(Fault(point, 1), Fault(point, 3)) == 2
    assert to_four.published() == ALL


@pytest.mark.bench
@pytest.mark.parametrize("point", ["mid_rows", "after_commit"])
def test_crash_of_a_small_batch_that_the_driver_writes(small, point):
    assert small.run(Fault(point, 1), Fault(point, 3)) == 2
    assert small.published() == ALL


@pytest.mark.bench
def test_mutant_without_marker_doubles(to_four):
    to_four.run(Fault("after_commit", 2), kind=NoMarker)
    assert len(to_four.published()) == len(ALL) + ROWS


@pytest.mark.long
def test_acknowledgements_of_rows_that_are_lost(copy, kafka):
    def lose():
        for _ in range(3):
            kafka[1].drop_next_response(Request.PRODUCE)

    assert copy.run(At("before_rows", 2, lose)) == 0
    assert copy.published() == ALL


@pytest.mark.long
@pytest.mark.parametrize(
    "strike",
    [
        lambda proxy: proxy.drop_next_request(Request.PRODUCE),
        lambda proxy: proxy.drop_next_response(Request.END_TXN),
        lambda proxy: proxy.delay_next_response(Request.END_TXN, 1.0),
        lambda proxy: proxy.cut(),
    ],
    ids=["rows lost", "commit's answer lost", "commit's answer late", "cut"],
)
@pytest.mark.parametrize("point", ["before_rows", "before_commit"])
def test_network_that_loses_delays_and_cuts_fails_no_batch(to_four, kafka, point, strike):
    assert to_four.run(At(point, 2, lambda: strike(kafka[1]))) == 0
    kafka[1].disarm()
    assert to_four.published() == ALL


def take_an_epoch(sink):
    """Take an epoch as another driver of the sink's name does."""
    PendingProducer(sink._settings).take(Deadline(30))


@pytest.mark.long
def test_newer_driver_fences_the_older_one_in_the_middle_of_a_batch(to_four):
    older, newer = to_four.sink(), to_four.sink()
    fence = At("mid_rows", 2, lambda: take_an_epoch(newer))
    with to_four.points.armed(fence), pytest.raises(StreamingQueryException, match="fenced: a newer producer"):
        to_four.once(older)
    to_four.run()
    assert to_four.published() == ALL


@pytest.mark.long
def test_batches_are_written_by_the_driver_while_they_are_small(small, to_four, calls_of):
    by_driver = calls_of(ExecutorsTransport, "_write_as_driver")
    small.run()
    assert len(by_driver) >= BATCHES  # the first one too, of which nobody knew how large it would be
    by_driver.clear()
    to_four.run(driver_rows=ROWS // 8)
    assert not by_driver
    assert small.published() == to_four.published() == ALL


@pytest.mark.long
def test_small_batch_that_spark_fails_to_compute_is_not_published_in_part(spark, kafka):
    broken = "if(value = 777, raise_error('broken'), string(value % 50)) AS key"
    copy = Copy(spark, kafka[0].bootstrap_servers, 4, driver_rows=ROWS, columns=(broken,))
    with pytest.raises(StreamingQueryException, match="broken"):
        copy.once(copy.sink())
    assert wait_until_ended(copy.servers, copy.topic, timeout=30).state == "CompleteAbort"
    assert copy.published() == ALL[: 3 * ROWS]


@pytest.mark.long
def test_batches_of_few_but_large_rows_are_the_executors(small, calls_of, monkeypatch):
    by_executors = calls_of(ExecutorsTransport, "_write_by_executors")
    monkeypatch.setattr(choose_writer, "IN_MEMORY", 1000)  # bytes
    small.run()
    assert len(by_executors) >= BATCHES - 1  # the first one was written by the driver, which found it to be large
    assert small.published() == ALL


@pytest.mark.long
def test_rows_and_marker_of_a_small_batch_go_in_one_request(small, monkeypatch):
    sizes, send = [], Cluster.send

    def noting(cluster, request, node):
        if isinstance(request, ProduceRequest):
            sizes.append(sum(len(topic.partition_data) for topic in request.topic_data))
        return send(cluster, request, node)

    monkeypatch.setattr(Cluster, "send", noting)
    small.run()
    assert small.published() == ALL
    assert sizes.count(4 + 1) >= BATCHES  # one more for each that Kafka put off


@pytest.mark.long
def test_an_epoch_is_asked_for_once_and_then_given_with_each_commit(to_four, monkeypatch):
    given, real = [], Coordinator.fence_once

    def fence(*who):
        given.append(real(*who))
        return given[-1]

    monkeypatch.setattr(Coordinator, "fence_once", fence)
    to_four.run()
    assert to_four.published() == ALL
    assert len(given) == 1


@pytest.mark.long
def test_keys_values_headers_partitions_and_topics_are_as_in_sparks_writer(spark, publish_rows, kafka):
    servers = kafka[0].bootstrap_servers
    one, two = (create_topic(servers, f"t-{uuid.uuid4().hex[:8]}", n) for n in (3, 1))
    rows = spark.createDataFrame(
        [
            ("k", b"v", 2, one, [("h", b"1"), ("h", None)]),
            (None, b"w", None, two, None),
            (None, None, 0, one, []),
            ("", b"", None, two, None),
        ],
        f"key string, value binary, partition int, topic string, headers {HEADERS}",
    )
    sink = ExactlyOnceKafkaSink(f"to-{one}", bootstrap_servers=servers, batch_headers=False, **BY_EXECUTORS)
    publish_rows(sink, rows)
    found = {
        (m.topic(), m.partition(), m.key(), m.value(), tuple(m.headers() or ()))
        for t in (one, two)
        for m in read_committed(servers, t)
    }
    assert found == {
        (one, 2, b"k", b"v", (("h", b"1"), ("h", None))),
        (two, 0, None, b"w", ()),
        (one, 0, None, None, ()),
        (two, 0, b"", b"", ()),
    }


@pytest.mark.long
def test_keys_go_to_the_partitions_that_sparks_writer_chooses(spark, publish_rows, kafka):
    servers = kafka[0].bootstrap_servers
    ours, sparks = (create_topic(servers, f"p-{uuid.uuid4().hex[:8]}", 5) for _ in range(2))
    rows = spark.range(5000, numPartitions=3).selectExpr("string(id) as key", "string(id) as value")
    publish_rows(ExactlyOnceKafkaSink(ours, ours, bootstrap_servers=servers, **BY_EXECUTORS), rows)
    rows.write.format("kafka").options(**{"kafka.bootstrap.servers": servers, "topic": sparks}).save()
    placed = [{m.key(): m.partition() for m in read_committed(servers, t)} for t in (ours, sparks)]
    assert len(placed[0]) == 5000
    assert placed[0] == placed[1]


@pytest.mark.long
def test_rows_without_keys_are_spread_over_the_partitions(spark, publish_rows, kafka):
    servers = kafka[0].bootstrap_servers
    topic = create_topic(servers, f"s-{uuid.uuid4().hex[:8]}", 3)
    rows = spark.range(3000, numPartitions=6).selectExpr("string(id) as value")
    publish_rows(ExactlyOnceKafkaSink(topic, topic, bootstrap_servers=servers, **BY_EXECUTORS), rows)
    found = read_committed(servers, topic)
    assert sorted(int(m.value() or b"") for m in found) == list(range(3000))
    assert {m.partition() for m in found} == {0, 1, 2}


@pytest.mark.long
def test_every_record_says_its_batch_and_each_tasks_last_one_how_many_it_wrote(spark, publish_rows, kafka):
    servers = kafka[0].bootstrap_servers
    topic = create_topic(servers, f"h-{uuid.uuid4().hex[:8]}", 3)
    rows = spark.range(100, numPartitions=3).selectExpr("string(id) as key", "string(id) as value")
    publish_rows(ExactlyOnceKafkaSink(topic, topic, bootstrap_servers=servers, **BY_EXECUTORS), rows)
    headers = [dict(headers_of(m)) for m in read_committed(servers, topic)]
    assert {h["batch_id"] for h in headers} == {b"0"}
    totals = {h["attempt"]: int(h["batch_rows"] or b"") for h in headers if "batch_rows" in h}
    assert totals == {name: sum(h["attempt"] == name for h in headers) for name in {h["attempt"] for h in headers}}
    assert sum(totals.values()) == 100


@pytest.mark.long
@pytest.mark.parametrize(
    ("columns", "complaint"),
    [
        (["'v' AS value", "string(NULL) AS topic"], "column 'topic' is null in a row"),
        (["'v' AS value", "'large' AS topic", f"cast(array(NULL) AS {HEADERS}) AS headers"], "an element is null"),
        (["repeat('x', 2000000) AS value", "'large' AS topic"], "is larger than the topic's max"),
        (["'v' AS value", "'large' AS topic", "7 AS partition"], "names a partition that the topic does not have"),
        (["'v' AS value", "'nowhere' AS topic"], "no such topic or partition"),
    ],
    ids=["no topic", "null header", "too large", "no such partition", "no such topic"],
)
def test_row_that_kafka_does_not_take_fails_the_batch_with_the_reason(spark, publish_rows, kafka, columns, complaint):
    servers = kafka[0].bootstrap_servers
    name = f"refused-{uuid.uuid4().hex[:8]}"
    create_topic(servers, "large", 1)
    sink = ExactlyOnceKafkaSink(name, bootstrap_servers=servers, transaction_timeout_ms=120_000, **BY_EXECUTORS)
    with pytest.raises(StreamingQueryException, match=complaint) as failure:
        publish_rows(sink, spark.range(3, numPartitions=2).selectExpr(*columns))
    assert "PythonException" not in str(failure.value), "it is not the sink that says it"
    assert not wait_until_ended(servers, name, timeout=60).open, "the sink has left it to Kafka"
    assert not read_committed(servers, "large")


@pytest.mark.long
@pytest.mark.parametrize("driver_rows", [0, 100], ids=["by executors", "by the driver"])
def test_first_batch_that_takes_longer_to_compute_than_a_transaction_may_last_is_published(
    spark, publish_rows, kafka, driver_rows
):
    servers = kafka[0].bootstrap_servers
    topic = create_topic(servers, f"slow-{uuid.uuid4().hex[:8]}", 1)
    wait = "java_method('java.util.concurrent.locks.LockSupport', 'parkNanos', 8000000000L)"  # returns null
    rows = spark.range(2, numPartitions=1).selectExpr(f"substring(concat(string(id), {wait}), 1, 1) AS value")
    options = {"driver_rows": driver_rows, "transaction_timeout_ms": 6000}
    publish_rows(ExactlyOnceKafkaSink(topic, topic, bootstrap_servers=servers, **options), rows)
    assert sorted(m.value() or b"" for m in read_committed(servers, topic)) == [b"0", b"1"]


@pytest.mark.long
@pytest.mark.parametrize("columns", [["string(value % 50) AS key"], []], ids=["keys", "no keys"])
def test_partitions_that_are_added_on_the_way_are_written_to(spark, kafka, columns):
    """The driver has heard of them, the executors have not."""
    copy = Copy(spark, kafka[0].bootstrap_servers, 2, columns=columns)
    sink = copy.sink()

    def add_two():
        with admin(copy.servers) as client:
            client.create_partitions({copy.topic: 4})
        cluster = sink.transport.coordinator.cluster
        eventually(lambda: cluster.partitions(copy.topic, Deadline(30), at_least=4) == 4)

    with copy.points.armed(At("before_rows", 3, add_two)):
        copy.once(sink)
    assert copy.published() == ALL
    assert {m.partition() for m in read_committed(copy.servers, copy.topic)} & {2, 3}


@pytest.mark.long
def test_rows_are_computed_by_as_many_tasks_as_can_run_though_one_is_to_write_them(spark, kafka, monkeypatch):
    monkeypatch.setattr(partitioner, "SLOWER", 1)  # for this Spark has two cores
    copy = Copy(spark, kafka[0].bootstrap_servers, 1, columns=[])
    sink = copy.sink()

    def saying_who_computes(batches):
        context = TaskContext.get()
        assert context
        task = str(context.partitionId())
        for batch in batches:
            yield pyarrow.RecordBatch.from_arrays([pyarrow.array([task] * batch.num_rows)], ["value"])

    copy.once(lambda rows, batch: sink(rows.mapInArrow(saying_who_computes, "value string"), batch))
    assert set(copy.published()) == {0, 1, 2}


@pytest.mark.long
@pytest.mark.parametrize(
    "options",
    [{"writers": "driver"}, BY_EXECUTORS, {"writers": "executors"}],
    ids=["by librdkafka", "by the executors", "few rows by the driver"],
)
@pytest.mark.parametrize("named_by_rows", [False, True], ids=["topic of the sink", "topic of the rows"])
def test_topic_that_does_not_exist_is_said_to(spark, publish_rows, kafka, options, named_by_rows):
    name = f"nowhere-{uuid.uuid4().hex[:8]}"
    options = options | {"bootstrap_servers": kafka[0].bootstrap_servers, "transaction_timeout_ms": 120_000}
    sink = ExactlyOnceKafkaSink(f"to-{name}", None if named_by_rows else name, **options)
    began = time.monotonic()
    with pytest.raises(StreamingQueryException, match=f"BatchFailed.*no such topic or partition.*[' ]{name}"):
        publish_rows(sink, spark.range(3).selectExpr("'v' AS value", f"'{name}' AS topic"))
    assert time.monotonic() - began < 60


@pytest.mark.long
@pytest.mark.parametrize("options", [{"writers": "driver"}, BY_EXECUTORS], ids=WRITERS)
def test_topic_that_does_not_exist_is_not_made_by_a_kafka_that_makes_topics(spark, publish_rows, options):
    with Broker(settings={"auto.create.topics.enable": "true"}) as kafka:
        options = options | {"bootstrap_servers": kafka.bootstrap_servers, "transaction_timeout_ms": 120_000}
        sink = ExactlyOnceKafkaSink("to-nowhere", "nowhere", **options)
        with pytest.raises(StreamingQueryException, match=r"BatchFailed.*no such topic or partition"):
            publish_rows(sink, spark.range(3).selectExpr("'v' AS value"))
        with admin(kafka.bootstrap_servers) as client:
            assert "nowhere" not in client.list_topics()


@pytest.mark.long
def test_kafka_without_transaction_version_2_has_the_driver_write_and_says_so(to_four, kafka, caplog):
    def transaction_version(level, how="UPGRADE"):
        with admin(kafka[0].bootstrap_servers) as client:
            client.update_features({"transaction.version": (how, level)})
            eventually(lambda: client.describe_features()["transaction.version"].get("finalized", (0,))[0] == level)

    transaction_version(0, "SAFE_DOWNGRADE")
    try:
        to_four.once(sink := to_four.sink())
    finally:
        transaction_version(2)
    assert to_four.published() == ALL
    assert isinstance(sink.transport, DriverTransport)
    assert sink.transport._repair is None
    assert any("transaction.version" in message for message in caplog.messages)


def with_a_lock():
    """Return a function for tokens that cannot be pickled."""
    lock = threading.Lock()
    return lambda _: ("token", 2e9) if lock else None


@pytest.mark.long
@pytest.mark.parametrize(
    "option",
    [
        {"sasl_mechanism": "OAUTHBEARER"},
        {"sasl_mechanism": "GSSAPI"},
        {"partitioner": "consistent"},
        {"broker_address_family": "v4"},
    ],
    ids=["token of nobody", "Kerberos", "partitioner", "address family"],
)
def test_option_that_executors_cannot_follow_has_the_driver_write_and_says_so(spark, to_four, option, caplog):
    assert isinstance(to_four.sink(**option).transport_for(spark, Deadline(30)), DriverTransport)
    assert any(re.search("the driver writes, since (kafka-python|executors)", message) for message in caplog.messages)
    looks = "partitioner" in option  # the others keep kafka-python from logging in
    assert any("cannot check whether Kafka leaves rows open" in message for message in caplog.messages) != looks


@pytest.mark.parametrize(
    "option",
    [
        {"sasl_mechanism": "OAUTHBEARER", "security_protocol": "SASL_PLAINTEXT", "oauth_cb": with_a_lock()},
        {"security_protocol": "SSL", "ssl_ca_location": "probe"},
        {"security_protocol": "SSL", "ssl_ca_location": "/etc/ssl/certs"},
    ],
    ids=["token of a function that stays here", "certificates wherever", "certificates in a folder"],
)
def test_login_that_executors_cannot_follow_is_known_before_kafka_is_asked(option):
    with pytest.raises(ValueError, match=r"kafka-python|executors"):
        kafka_python_settings(producer_settings("sink", "127.0.0.1:1", option))


@pytest.mark.long
@pytest.mark.parametrize("codec", ["lz4", "zstd", "gzip", "SNAPPY"])
def test_rows_are_compressed_and_no_batch_is_larger_than_the_topic_takes(spark, publish_rows, kafka, codec):
    servers = kafka[0].bootstrap_servers
    topic = create_topic(servers, f"c-{uuid.uuid4().hex[:8]}", 2, max_message_bytes="20000")
    key = "concat(string(id % 9), repeat('x', 400))"
    rows = spark.range(5000, numPartitions=2).selectExpr(f"{key} as key", "string(id) as value")
    options = {"message_max_bytes": 20_000, "compression_type": codec} | BY_EXECUTORS
    publish_rows(ExactlyOnceKafkaSink(topic, topic, bootstrap_servers=servers, **options), rows)
    sent = [each.size for each in kafka[1].log if each.kind is Request.PRODUCE and each.transactional_id == topic]
    assert 0 < sum(sent) < 5000 * 400 / 2
    found = read_committed(servers, topic)
    assert sorted(int(m.value() or b"") for m in found) == list(range(5000))
