"""The sink for Real-Time Mode on a real Kafka and a real Spark: killed at every point, frozen, and refused."""

from __future__ import annotations

import shutil
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest
from pyspark import cloudpickle
from pyspark.errors import PySparkException, StreamingQueryException
from pyspark.sql import functions as F

from labs.equipment.topics import remove_topics
from labs.equipment.waiting import eventually
from labs.faults.fault_points import TaskFaults
from labs.pipeline.query.ip_count import read_source
from labs.pipeline.sinks.real_time_sink import (
    REAL_TIME_POINTS,
    SHORTEST,
    RealTimeKafkaSink,
    by_place,
    marker_topics,
    real_time_writer,
    start_real_time,
)
from labs.runs.real_time_kills import PATIENCE, RealTimeTrial, kill_at, kill_control
from tests.pipeline.real_time import mutants
from tests.pipeline.real_time.mutants import by_epochs, by_offsets, no_marker
from tests.sink.conftest import numbers_in, topic_of_numbers

pytestmark = pytest.mark.long

# Spark's workers do not have the tests on their path.
cloudpickle.register_pickle_by_value(mutants)


@pytest.fixture
def trial(spark, broker):
    with RealTimeTrial(broker.bootstrap_servers) as trial:
        yield trial


@pytest.mark.parametrize("point", REAL_TIME_POINTS)
def test_worker_killed_at_any_point_neither_loses_nor_doubles(spark, broker, point):
    report = kill_at(broker.bootstrap_servers, point, workers=2)
    assert report.audit.valid, report.audit


@pytest.mark.soak
def test_job_killed_after_commit_while_its_worker_lives_on_neither_loses_nor_doubles(spark, broker):
    report = kill_at(broker.bootstrap_servers, "after_commit", workers=0, jobs=1)
    assert report.audit.valid, report.audit


def test_job_killed_with_sparks_own_sink_doubles(spark, broker):
    audit = kill_control(broker.bootstrap_servers).audit
    assert audit.duplicated
    assert not audit.lost


def test_mutant_without_marker_doubles_after_a_kill_after_commit(spark, broker):
    audit = kill_at(broker.bootstrap_servers, "after_commit", workers=1, published=no_marker).audit
    assert audit.duplicated


@pytest.mark.soak
def test_mutant_whose_marker_is_the_epoch_is_found_out(spark, broker):
    audit = kill_at(broker.bootstrap_servers, "after_commit", workers=2, published=by_epochs).audit
    assert not audit.valid  # it loses what the repeated epoch has more, or doubles it


@pytest.mark.soak
def test_job_that_was_frozen_before_its_commit_is_fenced_when_it_wakes_up(trial):
    with trial.frozen_job("before_commit") as go_on:
        query, done = trial.start(), trial.epochs_done()
        eventually(lambda: trial.epochs_done() > done + 2, PATIENCE)
        go_on()
    audit = trial.audited(query)
    assert audit.valid, audit


def run_for_an_epoch(trial):
    query, done = trial.start(), trial.epochs_done()
    eventually(lambda: trial.epochs_done() > done, PATIENCE)
    query.stop()


@pytest.mark.soak
def test_query_that_is_stopped_again_and_again_neither_loses_nor_doubles(trial):
    for _ in range(4):
        run_for_an_epoch(trial)
    audit = trial.audited()
    assert audit.valid, audit


@pytest.mark.soak
def test_older_copy_of_the_checkpoint_is_no_harm(trial, tmp_path):
    query = trial.start()
    eventually(lambda: trial.epochs_done() > 1, PATIENCE)
    query.stop()
    copy = tmp_path / "copy"
    shutil.copytree(trial.job.checkpoint, copy)
    query, done = trial.start(), trial.epochs_done()
    eventually(lambda: trial.epochs_done() > done + 1, PATIENCE)
    query.stop()
    trial.job = replace(trial.job, checkpoint=str(copy))
    audit = trial.audited()
    assert audit.valid, audit


def test_epoch_with_offsets_and_no_commit_is_repeated(trial):
    """What a driver leaves that dies between the two logs, made by hand: the moment is too short to strike."""
    query = trial.start()
    eventually(lambda: trial.epochs_done() > 2, PATIENCE)
    query.stop()
    commits, last = Path(trial.job.checkpoint, "commits"), str(trial.epochs_done() - 1)
    assert Path(trial.job.checkpoint, "offsets", last).exists()
    (commits / last).unlink()
    (commits / f".{last}.crc").unlink(missing_ok=True)
    audit = trial.audited()
    assert audit.valid, audit


@pytest.mark.soak
def test_task_that_spark_runs_again_skips_what_its_first_attempt_published(trial):
    with (
        trial.faults.armed("after_commit", first_epoch=1) as struck,
        trial.job_process(SPARK_MASTER="local[2,3]") as job,
    ):
        eventually(lambda: struck.exists() or job.exit_code is not None, PATIENCE)
        done = trial.epochs_done()
        eventually(lambda: trial.epochs_done() > done + 2 or job.exit_code is not None, PATIENCE)
        assert job.exit_code is None
    audit = trial.audited()
    assert audit.valid, audit


def test_deleted_checkpoint_is_refused(trial):
    query = trial.start()
    eventually(lambda: trial.epochs_done() > 1, PATIENCE)
    query.stop()
    shutil.rmtree(trial.job.checkpoint)
    with pytest.raises(
        StreamingQueryException, match=r"query [^ ]+ has published rows of this source partition\. Writing"
    ):
        trial.start().awaitTermination(PATIENCE)


def test_deleted_marker_topic_is_refused(trial):
    query = trial.start()
    eventually(lambda: trial.epochs_done() > 1, PATIENCE)
    query.stop()
    remove_topics(trial.job.servers, *marker_topics(trial.job.topic))
    with pytest.raises(StreamingQueryException, match=r"there is no topic 'out-.*-marker-[01]', which the sink made"):
        trial.start().awaitTermination(PATIENCE)


def test_checkpoint_of_a_query_in_micro_batches_is_refused(trial, spark):
    """Its last batch may be in Kafka and not in Spark's log."""
    eventually(lambda: trial.feed.sent)
    records = read_source(spark, trial.job.servers, trial.job.source)
    batches = records.writeStream.option("checkpointLocation", trial.job.checkpoint).trigger(availableNow=True)
    batches.foreachBatch(lambda rows, _: None).start().awaitTermination(PATIENCE)
    assert trial.epochs_done() > 0
    with pytest.raises(StreamingQueryException, match=r"there is no topic 'out-.*-marker-[01]', which the sink made"):
        trial.start().awaitTermination(PATIENCE)


ROWS = 300  # made of each record


@pytest.fixture(scope="module")
def numbers(broker):
    return topic_of_numbers(broker.bootstrap_servers, "numbers-in-real-time")


@pytest.fixture
def exploded(spark, broker, numbers, topic, tmp_path):
    """Copy each of 30 numbers so often, in transactions that end amid the rows of one; return what is there of each."""

    def exploded(published):
        to, faults, servers = topic(), TaskFaults(str(tmp_path)), broker.bootstrap_servers
        sink = RealTimeKafkaSink(
            to, to, bootstrap_servers=servers, published=published, points=faults, rows_at_once=ROWS * 7 // 2
        )
        session = spark.newSession()
        session.conf.set(SHORTEST, "1000")
        records = read_source(session, broker.bootstrap_servers, numbers)
        copies = records.withColumn("copy", F.explode(F.sequence(F.lit(1), F.lit(ROWS))))
        rows = copies.select("value", F.struct("topic", "partition", "offset").alias("source"))
        start = lambda: start_real_time(rows, sink, str(tmp_path / "checkpoint"), "1 second")  # noqa: E731
        query = start()
        with faults.armed("after_commit", run=str(query.runId)) as struck:
            eventually(lambda: struck.exists() and not query.isActive, PATIENCE)
        query = start()
        eventually(lambda: query.lastProgress and query.lastProgress.batchId > 2, PATIENCE)
        query.stop()
        return Counter(numbers_in(broker.bootstrap_servers, to))

    return exploded


def test_record_that_becomes_many_rows_may_be_published_in_parts(exploded):
    assert exploded(by_place) == dict.fromkeys(range(30), ROWS)


@pytest.mark.soak
def test_mutant_whose_marker_knows_whole_records_only_loses_the_rest_of_one(exploded):
    assert exploded(by_offsets).total() < 30 * ROWS


def test_foreach_batch_is_refused(spark, broker, numbers, tmp_path):
    """So that no sink for micro-batches can be used here."""
    rows = read_source(spark, broker.bootstrap_servers, numbers).select("value")
    writer = real_time_writer(rows, str(tmp_path), "5 seconds")
    with pytest.raises(PySparkException, match="ForeachBatchSink"):
        writer.foreachBatch(lambda rows, batch: None).start().awaitTermination(PATIENCE)


def test_rows_without_their_source_are_refused(spark, broker, numbers, topic, tmp_path):
    sink = RealTimeKafkaSink("no-source", topic(), bootstrap_servers=broker.bootstrap_servers)
    rows = read_source(spark, broker.bootstrap_servers, numbers).select("value")
    with pytest.raises(StreamingQueryException, match="the columns value; expected value, source"):
        start_real_time(rows, sink, str(tmp_path)).awaitTermination(PATIENCE)
