"""Ordinary hostile days: a full disk, a read-only one, a torn file, records that are gone.

Each must end the query with a message that says what happened, and lose and double nothing when it is mended. The
job runs as a process of its own; where a disk must be full it has a small one to itself, in a mount namespace.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient
from pyspark.errors import StreamingQueryException

from exactly_once_kafka.sink import ExactlyOnceKafkaSink
from labs.evidence.auditor.audit import audit
from labs.evidence.checkpoint.checkpoint import damage
from labs.evidence.readers.results import read_results
from labs.faults.fault_points import Fault, FaultPoints
from labs.faults.job import JobFailed, JobProcess
from labs.pipeline.log.generate import classroom
from labs.pipeline.log.replay import replay
from labs.pipeline.query.ip_count import count_ips, read_source, start_query
from labs.pipeline.query.query_failure import why
from tests.conftest import RECORDS_PER_BATCH
from tests.pipeline import sink_runs

pytestmark = pytest.mark.long

ROOT = Path(__file__).parents[2]
PRIVATE_MOUNTS = ("unshare", "--map-root-user", "--mount")  # for the process and its children alone


def test_checkpoint_on_a_disk_that_fills_up_stops_the_query_and_loses_nothing(job_options, classroom_log, tmp_path):
    """The disk has room for a few batches. With more room, the same checkpoint goes on."""
    small, kept = tmp_path / "small", tmp_path / "kept"
    small.mkdir()
    options = job_options | {"checkpoint": small / "checkpoint"}
    arguments = [item for name, value in options.items() for item in (f"--{name.replace('_', '-')}", str(value))]
    script = 'mount -t tmpfs -o size=200k none "$0" && "$@"; code=$?; cp -r "$0" "$KEPT"; exit $code'
    ended = subprocess.run(
        [*PRIVATE_MOUNTS, "sh", "-c", script, small, sys.executable, "-m", "labs", "run", *arguments],
        env={**os.environ, "KEPT": str(kept), "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=200,
    )
    assert ended.returncode == 1
    assert "no space left on device: the disk of the checkpoint" in ended.stderr.splitlines()[-1]
    servers, results = job_options["bootstrap_servers"], job_options["sink_topic"]
    assert not audit(classroom_log.expected, read_results(servers, results)).valid
    with JobProcess(**job_options | {"checkpoint": kept / "checkpoint"}) as job:
        job.wait(300)
    assert audit(classroom_log.expected, read_results(servers, results)).valid


def test_checkpoint_that_cannot_be_written_is_a_clear_message(job_options):
    message = r"the checkpoint directory cannot be written \(Mkdirs failed to create file:/proc/checkpoint\)"
    with JobProcess(**job_options | {"checkpoint": "/proc/checkpoint"}) as job, pytest.raises(JobFailed, match=message):
        job.wait(300)


@pytest.mark.parametrize(("log", "batch"), [("offsets", 5), ("commits", 4)])
def test_torn_last_file_of_the_checkpoint_is_named_and_its_loss_survived(
    log, batch, spark, broker, topic, classroom_log, tmp_path
):
    checkpoint, results = tmp_path / "checkpoint", topic()
    points = FaultPoints()
    sink = ExactlyOnceKafkaSink(results, results, bootstrap_servers=broker.bootstrap_servers, points=points)
    with points.armed(Fault("before_commit", 5)), pytest.raises(StreamingQueryException):
        sink_runs.run(spark, broker, classroom_log, sink, checkpoint)
    torn = checkpoint / log / str(batch)
    torn.write_bytes(torn.read_bytes()[:1])
    (torn.parent / f".{batch}.crc").unlink()
    with pytest.raises(StreamingQueryException):
        sink_runs.run(spark, broker, classroom_log, sink, checkpoint)
    assert damage(checkpoint).startswith(f"{log}/{batch} ")
    torn.unlink()
    sink_runs.run(spark, broker, classroom_log, sink, checkpoint)
    assert audit(classroom_log.expected, read_results(broker.bootstrap_servers, results)).valid


def test_records_that_expired_while_the_query_was_down_stop_it(spark, broker, topic, tmp_path):
    servers, source, results = broker.bootstrap_servers, topic(), topic()
    replay(classroom(windows=8), servers, source)
    points = FaultPoints()
    sink = ExactlyOnceKafkaSink(results, results, bootstrap_servers=servers, points=points)

    def run():
        records = read_source(spark, servers, source, records_per_batch=RECORDS_PER_BATCH)
        with pytest.raises(StreamingQueryException) as failed:
            start_query(count_ips(records), sink, tmp_path).awaitTermination()
        return why(failed.value)

    with points.armed(Fault("before_rows", 3)):
        assert "crashed on purpose" in run()
    _expire(servers, source, before=5 * RECORDS_PER_BATCH)
    for _ in range(2):  # it does not skip them at the second attempt either
        assert "they expired while it was down. Nothing was skipped" in run()
    assert not read_results(servers, results)


@pytest.mark.soak
def test_disk_of_the_broker_that_fills_up_stops_the_query_and_loses_nothing(tmp_path):
    (place := tmp_path / "small").mkdir()
    ended = subprocess.run(
        [*PRIVATE_MOUNTS, sys.executable, "-u", "-m", "tests.pipeline.full_disk_run", place],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=500,
    )
    lines = ended.stdout.splitlines()
    assert lines[1:] == ["broker runs: False", "then: invalid", "at last: valid"], ended
    assert "Restart the query: the batch is repeated and published once" in lines[0]


def _expire(servers, topic, before):
    admin = AdminClient({"bootstrap.servers": servers})
    [done] = admin.delete_records([TopicPartition(topic, 0, before)]).values()
    assert done.result(30).low_watermark == before
