"""The job as a process, killed for real: what the next process repeats, and what a reader sees of it."""

from __future__ import annotations

import os
import random
import signal
import tempfile

import pytest

from exactly_once_kafka.points import FAULT_POINTS
from exactly_once_kafka.protocol import exactly_once
from labs.equipment.waiting import eventually
from labs.evidence.auditor.audit import audit
from labs.evidence.auditor.expected import count_by_window
from labs.evidence.checkpoint.checkpoint import read_checkpoint
from labs.evidence.checkpoint.planned_results import planned_results, read_source_records
from labs.evidence.readers.results import read_results
from labs.exercises.solutions import exactly_once_sink
from labs.faults.fault_points import Fault
from labs.faults.job import JobFailed, JobProcess
from labs.faults.supervisor import HotSpare, Supervisor
from labs.pipeline.log.generate import classroom
from labs.pipeline.log.replay import close_windows, replay
from tests.sink.crashes import crashes

KILLS = 4
REFERENCE = exactly_once_sink.__file__


def run_and_kill_at_each(faults, options):
    """Run the job to its end, killed by one fault after the other. Who takes over comes from a hot spare."""

    def attempt(number: int) -> None:
        with spare.take(tuple(faults[number - 1 : number]), **options) as job:
            job.wait(300)

    with HotSpare() as spare:
        attempts = Supervisor(attempt, restarts=len(faults), delay=0, report=lambda _: None).run()
    assert [str(a.error).split(";")[0] for a in attempts[:-1]] == ["killed by SIGKILL"] * len(faults)


@pytest.mark.long
@pytest.mark.timeout(900)
def test_sigkill_at_every_point_with_the_exactly_once_sink_neither_loses_nor_doubles(job_options, classroom_log):
    """The spare that takes over is warm, or not yet: it must be as good at every point."""
    faults = [Fault(point, 3 + n, "kill") for n, point in enumerate(FAULT_POINTS)]
    run_and_kill_at_each(faults, job_options)
    verdict = audit(classroom_log.expected, read_results(job_options["bootstrap_servers"], job_options["sink_topic"]))
    assert verdict.valid, verdict


@pytest.mark.soak
@pytest.mark.long
@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    ("sink", "ways"),
    [
        ("by-driver", crashes(exactly_once, epochs=True)),
        ("by-executors", crashes(exactly_once, epochs=True)),
        (REFERENCE, [[point] for point in FAULT_POINTS]),
    ],
    ids=["driver", "executors", "reference"],
)
def test_sigkill_before_and_after_each_step_neither_loses_nor_doubles(job_options, broker, topic, sink, ways):
    faults = [Fault(at, batch, "kill") for batch, several in enumerate(ways, start=3) for at in several]
    log = list(classroom(windows=len(ways) + 6, clients=8))
    source = topic()
    replay(log, broker.bootstrap_servers, source)
    close_windows(max(time for time, _ in log), broker.bootstrap_servers, source)
    options = job_options | {"source_topic": source, "sink": sink}
    run_and_kill_at_each(faults, options)
    verdict = audit(count_by_window(log), read_results(broker.bootstrap_servers, options["sink_topic"]))
    assert verdict.valid, verdict


@pytest.mark.soak
@pytest.mark.long
@pytest.mark.timeout(900)
def test_seeded_sigkills_at_least_once_lose_nothing_and_double_what_the_checkpoint_predicts(job_options, classroom_log):
    servers, chance = job_options["bootstrap_servers"], random.Random(7)
    predicted = 0

    def killed_in_batch(number: int) -> None:
        with JobProcess(sink="at-least-once", **job_options) as job:
            if number <= KILLS:
                eventually(lambda: job.has_begun(number + 1) or not job.running, timeout=300)
                with pytest.raises(TimeoutError):  # let a seeded moment of the batch go by
                    job.wait(chance.uniform(0.0, 0.3))
                job.kill()
                raise JobFailed("killed")
            job.wait(300)

    def predict_what_a_restart_repeats(_) -> None:
        nonlocal predicted
        checkpoint = read_checkpoint(job_options["checkpoint"])
        repeated = planned_results(checkpoint, read_source_records(servers, job_options["source_topic"])).repeated
        published = {(r.window_start, r.ip) for r in read_results(servers, job_options["sink_topic"])}
        predicted += len(repeated.keys() & published)

    Supervisor(killed_in_batch, restarts=KILLS, delay=0, report=predict_what_a_restart_repeats).run()
    verdict = audit(classroom_log.expected, read_results(servers, job_options["sink_topic"]))
    assert verdict.lost == 0, verdict
    assert verdict.duplicated == predicted


@pytest.mark.long
@pytest.mark.timeout(900)
@pytest.mark.soak
def test_zombie_woken_after_its_successor_committed_is_fenced(job_options, classroom_log):
    job_options["transaction_timeout_ms"] = 600_000  # or a slow machine's broker would end the transaction first
    with JobProcess((Fault("before_commit", 5, "pause"),), **job_options) as zombie:
        eventually(lambda: zombie.has_begun(5), timeout=300)
        eventually(lambda: zombie.paused, timeout=30)
        with JobProcess(**job_options) as successor:
            successor.wait(300)
        zombie.resume()
        with pytest.raises(JobFailed, match="fenced"):
            zombie.wait(300)
    verdict = audit(classroom_log.expected, read_results(job_options["bootstrap_servers"], job_options["sink_topic"]))
    assert verdict.valid, verdict


@pytest.mark.long
def test_killed_job_leaves_no_temporary_file(job_options, tmp_path, monkeypatch):
    place = tmp_path / "temporary files"
    place.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(place))
    with JobProcess(**job_options) as job:
        eventually(lambda: job.has_begun(1) or not job.running, timeout=300)
        assert list(place.glob("*/tmp/*/blockmgr-*")), "Spark keeps its temporary files somewhere else"
        job.kill()
    assert not list(place.iterdir())


@pytest.mark.soak
@pytest.mark.long
def test_ctrl_c_while_spark_works_is_one_line(job_options):
    with JobProcess(**job_options) as job:
        eventually(lambda: job.has_begun(2) or not job.running, timeout=300)
        os.kill(job.group, signal.SIGINT)
        with pytest.raises(JobFailed, match="exit code 130; stopped"):
            job.wait(60)
        assert "Traceback" not in job.output()
        assert "Error" not in job.output()


@pytest.mark.bench
def test_job_that_cannot_start_says_why_in_its_last_line(tmp_path, broker):
    with (
        JobProcess(bootstrap_servers=broker.bootstrap_servers, checkpoint=tmp_path, fault="nowhere@1") as job,
        pytest.raises(JobFailed, match="no fault point 'nowhere'"),
    ):
        job.wait(60)


def test_fault_does_not_kill_a_process_that_is_no_job():
    with pytest.raises(RuntimeError, match="signals job processes only"):
        Fault("after_commit", 1, "kill").strike()
