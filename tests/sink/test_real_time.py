"""The sink for Real-Time Mode on a real Kafka and a real Spark: killed at every point, frozen, and refused."""

from __future__ import annotations

import shutil
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest
from pyspark import cloudpickle
from pyspark.errors import StreamingQueryException
from pyspark.sql import functions as F

from exactly_once_kafka.batch import Batch, Marker, Unfit, is_done
from exactly_once_kafka.errors import SinkRefused
from exactly_once_kafka.patience import Patience
from exactly_once_kafka.real_time.birth import Birth
from exactly_once_kafka.real_time.clients import Clients
from exactly_once_kafka.real_time.points import REAL_TIME_POINTS
from exactly_once_kafka.real_time.sink import RealTimeKafkaSink
from exactly_once_kafka.real_time.task import Task
from labs.equipment.eventually import eventually
from labs.equipment.topics import remove_topics
from labs.faults.task_fault import TaskFaults
from labs.pipeline.query.ip_count import read_source
from labs.pipeline.query.real_time import SHORTEST, start_real_time
from labs.runs.real_time import kill_at, kill_control
from labs.runs.real_time_trial import PATIENCE, RealTimeTrial
from tests.sink import mutants_real_time
from tests.sink.conftest import numbers_in
from tests.sink.mutants_real_time import MarkerOfEpochs, MarkerOfOffsets, NoMarker

pytestmark = pytest.mark.long

# Spark's workers do not have the tests on their path.
cloudpickle.register_pickle_by_value(mutants_real_time)


@pytest.fixture
def trial(spark, broker):
    with RealTimeTrial(broker.bootstrap_servers) as trial:
        yield trial


@pytest.mark.parametrize("point", REAL_TIME_POINTS)
def test_worker_killed_at_any_point_neither_loses_nor_doubles(spark, broker, point):
    report = kill_at(broker.bootstrap_servers, point, workers=2)
    assert report.audit.valid, report.audit


def test_job_killed_after_commit_while_its_worker_lives_on_neither_loses_nor_doubles(spark, broker):
    report = kill_at(broker.bootstrap_servers, "after_commit", workers=0, jobs=1)
    assert report.audit.valid, report.audit


def test_job_killed_with_sparks_own_sink_doubles(spark, broker):
    audit = kill_control(broker.bootstrap_servers).audit
    assert audit.duplicated
    assert not audit.lost


def test_mutant_without_marker_doubles_after_a_kill_after_commit(spark, broker):
    audit = kill_at(broker.bootstrap_servers, "after_commit", workers=1, kind=NoMarker).audit
    assert audit.duplicated


def test_mutant_whose_marker_is_the_epoch_is_found_out(spark, broker):
    audit = kill_at(broker.bootstrap_servers, "after_commit", workers=2, kind=MarkerOfEpochs).audit
    assert not audit.valid  # it loses what the repeated epoch has more, or doubles it


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


def test_query_that_is_stopped_again_and_again_neither_loses_nor_doubles(trial):
    for _ in range(4):
        run_for_an_epoch(trial)
    audit = trial.audited()
    assert audit.valid, audit


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
    with pytest.raises(StreamingQueryException, match=r"the name is that of query [^ ]+\. Writing"):
        trial.start().awaitTermination(PATIENCE)


def test_deleted_marker_topic_is_refused(trial):
    query = trial.start()
    eventually(lambda: trial.epochs_done() > 1, PATIENCE)
    query.stop()
    remove_topics(trial.job.servers, f"{trial.job.topic}-marker")
    with pytest.raises(StreamingQueryException, match="does not say which query began under this name"):
        trial.start().awaitTermination(PATIENCE)


ROWS = 300  # made of each record


@pytest.fixture
def exploded(spark, broker, numbers, topic, tmp_path):
    """Copy each of 30 numbers so often, in small transactions; return what is there of each, at last."""

    def exploded(kind):
        to, faults = topic(), TaskFaults(str(tmp_path))
        sink = kind(to, to, bootstrap_servers=broker.bootstrap_servers, points=faults, commit_seconds=0.01)
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
    assert exploded(RealTimeKafkaSink) == dict.fromkeys(range(30), ROWS)


def test_mutant_whose_marker_knows_whole_records_only_loses_the_rest_of_one(exploded):
    assert exploded(MarkerOfOffsets).total() < 30 * ROWS


def test_name_of_a_sink_for_micro_batches_is_refused(broker, topic):
    servers, name = broker.bootstrap_servers, topic()
    clients = Clients(name, None, topic(cleanup_policy="compact"), servers, {})
    producer = clients.new_epoch(name).take(Patience(30))
    clients.births().overwrite(Marker(4, "query", '{"offsets":1}'), producer, Patience(30))
    with pytest.raises(SinkRefused, match="a sink for micro-batches"):
        Birth(Task(name, 0, 5, "query"), clients).check()


def test_name_of_a_real_time_sink_is_refused_to_one_for_micro_batches(broker, topic):
    servers, name = broker.bootstrap_servers, topic()
    clients = Clients(name, None, topic(cleanup_policy="compact"), servers, {})
    Birth(Task(name, 0, 0, "query"), clients).note()
    # Spark's log has epoch 0; 1 may be in Kafka alone.
    with pytest.raises(Unfit, match="that of a RealTimeKafkaSink"):
        is_done(clients.births().read(Patience(30)), Batch("query", 1, "{}", "{}"))


def test_rows_without_their_source_are_refused(spark, broker, numbers, topic, tmp_path):
    sink = RealTimeKafkaSink("no-source", topic(), bootstrap_servers=broker.bootstrap_servers)
    rows = read_source(spark, broker.bootstrap_servers, numbers).select("value")
    with pytest.raises(StreamingQueryException, match="the sink needs a column 'source'; the rows have value"):
        start_real_time(rows, sink, str(tmp_path)).awaitTermination(PATIENCE)
