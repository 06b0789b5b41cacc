"""The hot spare: it touches nothing until it is told, then goes on at once, and is nowhere left behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from labs.commands.run import BadOrder, Orders, add_options
from labs.equipment.waiting import eventually
from labs.evidence.auditor.audit import audit
from labs.evidence.readers.results import read_results, read_visible
from labs.evidence.readers.transactions import read_ends, read_transactions
from labs.faults.fault_points import Fault
from labs.faults.job import JobFailed, JobProcess, NotASpare
from labs.faults.supervisor import HotSpare, Supervisor
from tests.processes import next_line

ROOT = Path(__file__).parents[2]
PARENT = """
import sys
from labs.faults.job import JobProcess
spare = JobProcess(warm=True)
print(spare.pid, flush=True)
sys.stdin.read()
"""


def all_that_kafka_knows(options: dict) -> list:
    """Return the sink's transactional id with its epoch, and where its topics end.

    Not what Kafka knows of others: clients that earlier tests have left may be at work.
    """
    servers, topics = options["bootstrap_servers"], (options["sink_topic"], f"{options['name']}-marker")
    own = [each for each in read_transactions(servers) if each.transactional_id == options["name"]]
    return [own, *(read_ends(servers, topic) for topic in topics)]


def connections(job: JobProcess, servers: str) -> int:
    """Return how many connections to Kafka a job has, with all that it started."""
    family = [psutil.Process(job.group), *psutil.Process(job.group).children(recursive=True)]
    port = int(servers.rpartition(":")[2])
    found = [each for member in family for each in member.net_connections() if each.raddr]
    return sum(each.raddr.port == port for each in found)


@pytest.mark.long
@pytest.mark.timeout(900)
def test_spare_touches_nothing_while_the_driver_lives_and_goes_on_from_its_checkpoint_when_it_is_killed(
    job_options, classroom_log
):
    servers = job_options["bootstrap_servers"]
    job_options["transaction_timeout_ms"] = 600_000  # or a slow machine's broker would end the transaction first
    faults = (Fault("mid_rows", 4, "pause"), Fault("mid_rows", 8, "kill"))
    with JobProcess(faults, **job_options) as driver:
        eventually(lambda: driver.paused, timeout=300)
        before = all_that_kafka_knows(job_options)
        assert [each.open for each in before[0]] == [True]
        with JobProcess(warm=True) as spare:
            eventually(lambda: spare.is_warm, timeout=300)
            assert connections(spare, servers) == 0 < connections(driver, servers)
            assert all_that_kafka_knows(job_options) == before
            driver.resume()
            with pytest.raises(JobFailed, match="killed by SIGKILL"):  # in batch 8: nobody had fenced it until then
                driver.wait(300)
            assert {"event": "done", "batch": 7} in driver.events()
            assert spare.events() == [{"event": "warm"}]
            visible = len(read_visible(servers, job_options["sink_topic"]))
            assert 0 < visible < len(classroom_log.expected)
            spare.take_over(**job_options)
            assert not spare.is_warm
            with pytest.raises(NotASpare, match="has taken over already"):
                spare.take_over(**job_options)
            spare.wait(300)
            assert spare.events()[1] == {"event": "begins", "batch": 8}
    verdict = audit(classroom_log.expected, read_results(servers, job_options["sink_topic"]))
    assert verdict.valid, verdict


@pytest.mark.long
@pytest.mark.timeout(900)
@pytest.mark.soak
def test_supervisor_goes_on_with_a_cold_start_where_the_spare_died_and_the_next_spare_ends_at_ctrl_c(
    job_options, classroom_log
):
    notes: list[str] = []
    faults = {1: (Fault("after_commit", 5, "kill"),)}
    with HotSpare(report=notes.append) as keeper:
        dead = keeper.waiting
        assert dead is not None
        os.killpg(dead.group, signal.SIGKILL)
        eventually(lambda: not dead.running)

        def attempt(number: int) -> None:
            with keeper.take(faults.get(number, ()), **job_options) as job:
                job.wait(300)

        attempts = Supervisor(attempt, restarts=1, delay=0, report=lambda _: None).run()
        assert [attempt.error is None for attempt in attempts] == [False, True]
        assert notes[0].startswith("the spare died before it could take over")
        last = eventually(lambda: keeper.waiting, timeout=30)
        eventually(lambda: last.is_warm, timeout=300)
        os.kill(last.group, signal.SIGINT)
        with pytest.raises(JobFailed, match="exit code 130; stopped"):
            last.wait(60)
        assert "Traceback" not in last.output()
    with pytest.raises(RuntimeError, match="closed"):
        keeper.take(**job_options)
    verdict = audit(classroom_log.expected, read_results(job_options["bootstrap_servers"], job_options["sink_topic"]))
    assert verdict.valid, verdict


@pytest.mark.long
def test_what_cannot_be_told_is_refused_and_what_cannot_be_read_is_one_line():
    with JobProcess(warm=True) as spare:
        with pytest.raises(ValueError, match="a spare gets its environment, with SPARK_MASTER, when it is started"):
            spare.take_over(environment={"SPARK_MASTER": "local[1]"})
        spare.take_over(checkpoint="here", colour="red")
        with pytest.raises(
            JobFailed, match=r"exit code 2; python -m labs run --warm: .* required: --bootstrap-servers"
        ):
            spare.wait(300)
        assert "Traceback" not in spare.output()


@pytest.mark.long
def test_only_a_warm_job_takes_over_and_it_is_told_nothing_before(job_options):
    with pytest.raises(ValueError, match="gets its faults and options from take_over"):
        JobProcess(warm=True, **job_options)
    with JobProcess(**job_options) as job, pytest.raises(NotASpare, match="was not started warm"):
        job.take_over(**job_options)


@pytest.mark.parametrize(
    ("line", "why"),
    [
        (b'{"checkpoint"\n', "no JSON"),
        (b"\xff\n", "no JSON"),
        (b'{"checkpoint": "here"}\n', "expected a JSON list of arguments"),
        (b'["--checkpoint", 1]\n', "expected a JSON list of arguments"),
        (b'["--checkpoint", "here", "--bootstrap-servers", "there", "--colour", "red"]\n', "unrecognized.*--colour"),
        (b'["--checkpoint", "here", "--bootstrap-servers", "there", "--fault", "nowhere@1"]\n', "no fault point"),
    ],
)
def test_an_order_that_cannot_be_carried_out_says_why(line, why):
    with pytest.raises(BadOrder, match=why):
        Orders(add_options).read(line)


@pytest.mark.long
def test_spare_whose_parent_is_killed_leaves_no_process_and_no_file(tmp_path):
    environment = {**os.environ, "TMPDIR": str(tmp_path), "PYTHONPATH": str(ROOT)}
    with subprocess.Popen(
        [sys.executable, "-c", PARENT], stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment
    ) as parent:
        spare = int(next_line(parent.stdout))
        # When its JVM is there, so that there is a whole family to be ended.
        eventually(lambda: psutil.Process(spare).children(recursive=True), timeout=60)
        family = [psutil.Process(spare), *psutil.Process(spare).children(recursive=True)]
        parent.kill()
    eventually(lambda: not any(each.is_running() for each in family), timeout=30)
    eventually(lambda: not list(tmp_path.iterdir()), timeout=30)


@pytest.mark.long
def test_spare_ends_with_its_standard_input_and_leaves_no_file(tmp_path):
    environment = {**os.environ, "TMPDIR": str(tmp_path), "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-m", "labs", "run", "--warm"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment) as spare:
        assert next_line(spare.stdout) == b'{"event": "warm"}\n'
        assert list(tmp_path.iterdir())
        assert spare.communicate(timeout=60) == (b"", None)
    assert spare.returncode == 0
    eventually(lambda: not list(tmp_path.iterdir()), timeout=30)
