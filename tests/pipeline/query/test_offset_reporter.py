"""The lag that Kafka's own tools show for the job: source end minus the last completed batch, at each batch."""

from __future__ import annotations

import contextlib
import os
import subprocess
import uuid

import pytest
from confluent_kafka import Consumer
from kafka import TopicPartition
from kafka.structs import OffsetAndMetadata
from pyspark.errors import StreamingQueryException

from exactly_once_kafka.points import BEFORE_CHECKPOINT
from exactly_once_kafka.sink import ExactlyOnceKafkaSink
from labs.equipment.jars import broker_jars
from labs.equipment.java import find_java
from labs.equipment.topics import admin, end_offsets
from labs.equipment.waiting import eventually
from labs.evidence.auditor.audit import audit
from labs.evidence.checkpoint.checkpoint import read_checkpoint
from labs.evidence.readers.results import read_results
from labs.faults.fault_points import Fault, FaultPoints
from labs.pipeline.query import ip_count
from labs.pipeline.query.offset_reporter import OffsetReporter, ends_of_batch


@pytest.fixture
def group():
    return f"lag-{uuid.uuid4().hex}"


@pytest.fixture
def sink(broker, topic):
    name = topic()
    return ExactlyOnceKafkaSink(name, name, bootstrap_servers=broker.bootstrap_servers, points=FaultPoints())


@pytest.fixture
def checkpoint(tmp_path):
    return tmp_path / "checkpoint"


@pytest.fixture
def run(spark, broker, classroom_log, sink, checkpoint):
    """Run the IP count with a reporter until the source's end, from the test's checkpoint."""

    def run(reporter, sink=sink, batches=3):
        spark.streams.addListener(reporter)
        try:
            records = ip_count.read_source(
                spark,
                broker.bootstrap_servers,
                classroom_log.topic,
                records_per_batch=len(classroom_log.expected) * 10 // batches + 1,
            )
            ip_count.start_query(ip_count.count_ips(records), sink, checkpoint).awaitTermination()
        finally:
            eventually(lambda: reporter.reports + reporter.failures >= len(completed(checkpoint)))
            spark.streams.removeListener(reporter)

    return run


def completed(checkpoint):
    return [batch for batch in read_checkpoint(checkpoint).batches if batch.committed]


@pytest.fixture
def kafka(broker):
    with admin(broker.bootstrap_servers) as client:
        yield client


@pytest.fixture
def source_end(broker, classroom_log):
    return end_offsets(broker.bootstrap_servers, classroom_log.topic)[0]


def committed(kafka, group):
    """The group's offset on the one partition of its topic."""
    return next((at.offset for at in kafka.list_group_offsets(group)[group].values()), None)


@pytest.mark.long
def test_lag_is_the_source_end_minus_the_last_completed_batch_at_each_batch(
    run, checkpoint, broker, classroom_log, sink, group, kafka, source_end
):
    lags = []

    def watching_sink(rows, batch_id):
        sink(rows, batch_id)  # done, and still not completed: Spark has not heard of it
        done = read_checkpoint(checkpoint).last_committed
        at = done.end[classroom_log.topic, 0] if done else None
        eventually(lambda: committed(kafka, group) == at)
        lags.append(source_end - (at or 0))

    run(OffsetReporter(group, bootstrap_servers=broker.bootstrap_servers), watching_sink, batches=4)
    assert len(lags) >= 4
    assert lags[0] == source_end
    assert lags == sorted(lags, reverse=True)
    assert committed(kafka, group) == source_end


@pytest.mark.long
def test_kafkas_own_lag_tool_shows_the_job(run, checkpoint, broker, classroom_log, group, sink):
    fault = Fault(BEFORE_CHECKPOINT, 2)
    with sink.points.armed(fault), contextlib.suppress(StreamingQueryException):
        run(OffsetReporter(group, bootstrap_servers=broker.bootstrap_servers), batches=4)
    tool = subprocess.run(
        [
            find_java().executable,
            *("-cp", os.pathsep.join(map(str, broker_jars()))),
            "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand",
            *("--bootstrap-server", broker.bootstrap_servers, "--describe", "--group", group),
        ],
        capture_output=True,
        text=True,
        timeout=60,
    )
    [row] = [line.split() for line in tool.stdout.splitlines() if line.startswith(group)]
    _, topic, partition, current, end, shown, *_ = row
    batch = read_checkpoint(checkpoint).last_committed
    assert batch is not None
    assert batch.batch_id == 1  # batch 2 is published, but not completed
    assert (topic, int(partition)) == (classroom_log.topic, 0)
    assert int(current) == batch.end[classroom_log.topic, 0]
    assert int(shown) == int(end) - int(current) > 0


@pytest.mark.long
def test_recovery_never_reads_what_was_reported(run, broker, classroom_log, group, sink, kafka, source_end):
    reporter = OffsetReporter(group, bootstrap_servers=broker.bootstrap_servers)
    with sink.points.armed(Fault(BEFORE_CHECKPOINT, 2)), contextlib.suppress(StreamingQueryException):
        run(reporter)
    nonsense = {TopicPartition(classroom_log.topic, 0): OffsetAndMetadata(10**6, "", None)}
    kafka.alter_group_offsets(group, nonsense)
    run(reporter)
    verdict = audit(classroom_log.expected, read_results(broker.bootstrap_servers, sink.topic))
    assert verdict.valid, verdict
    eventually(lambda: committed(kafka, group) == source_end)


@pytest.mark.long
def test_failing_report_is_counted_and_told_and_never_fails_the_query(
    run, checkpoint, broker, classroom_log, group, sink
):
    told: list[str] = []
    member = Consumer({"bootstrap.servers": broker.bootstrap_servers, "group.id": group})
    with contextlib.closing(member):
        member.subscribe([classroom_log.topic])
        eventually(lambda: (member.poll(0.1), member.assignment())[1])  # the group has a consumer of its own now
        reporter = OffsetReporter(group, bootstrap_servers=broker.bootstrap_servers, tell=told.append)
        run(reporter)
    assert reporter.reports == 0
    assert reporter.failures == len(completed(checkpoint)) > 1
    assert len(told) == 1
    assert "the query is not affected" in told[0]
    assert "consumers of its own" in told[0]
    verdict = audit(classroom_log.expected, read_results(broker.bootstrap_servers, sink.topic))
    assert verdict.valid, verdict


@pytest.mark.long
def test_reporter_of_another_query_is_silent(spark, run, broker, group, kafka):
    other = OffsetReporter(group, bootstrap_servers=broker.bootstrap_servers, query_name="somebody-else")
    spark.streams.addListener(other)
    try:
        run(OffsetReporter(f"{group}-2", bootstrap_servers=broker.bootstrap_servers))
    finally:
        spark.streams.removeListener(other)
    assert (other.reports, other.failures) == (0, 0)
    assert committed(kafka, group) is None


@pytest.mark.long
def test_source_that_is_not_kafka_has_nothing_to_report(spark, tmp_path):
    stream = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 5).load()
    query = stream.writeStream.format("noop").option("checkpointLocation", str(tmp_path)).start()
    progress = eventually(lambda: query.lastProgress)
    query.stop()
    assert progress.numInputRows
    assert [ends_of_batch(source) for source in progress.sources] == [{}]


def test_who_waits_for_reports_gets_them_or_is_told_that_they_do_not_come():
    reporter = OffsetReporter("lag", bootstrap_servers="127.0.0.1:1")
    reporter.reports = 2
    reporter.wait_for(reports=2)
    with pytest.raises(TimeoutError, match=r"within 0\.1 s"):
        reporter.wait_for(reports=3, timeout=0.1)
