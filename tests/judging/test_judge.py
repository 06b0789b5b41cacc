"""The judge on real jobs: right ones, wrong ones, and jobs that misbehave."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import time
import uuid
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from itertools import repeat
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest
from confluent_kafka import Producer

from labs.commands.main import main
from labs.engines.engine import Work
from labs.equipment.broker import Broker
from labs.equipment.jars import broker_jars
from labs.equipment.topics import admin
from labs.equipment.waiting import eventually
from labs.evidence.auditor.anomalies import Anomaly, Verdict
from labs.judge import judge
from labs.judging.job_session import ENDINGS, EngineStopped, JobSession, read
from labs.judging.judged_job import Job
from labs.judging.strikes import Aim
from labs.judging.workloads import Copy

EXAMPLES = Path(__file__).parents[2] / "examples" / "judge"
DOUBLED, LOST, TORN = Anomaly.DUPLICATE, Anomaly.LOST, Anomaly.TORN_BATCH
RIGHT = [
    *("copy_transactional", "transfer_transactional", "count_transactional", "copy_position_in_sink"),
    *("copy_kafka_python", "copy_aiokafka"),
]
WRONG = [
    ("copy_offset_in_file", {}, DOUBLED),
    ("copy_commit_first", {}, LOST),
    ("copy_last_offset", {}, DOUBLED),
    ("transfer_two_transactions", {"records": 400}, TORN),
    ("transfer_auto_commit", {}, DOUBLED),
    ("count_write_first", {}, DOUBLED),
    ("copy_auto_commit", {"kills": 1, "faults": ("kill", "pause", "outage")}, DOUBLED),
    ("copy_offsets_outside", {}, DOUBLED),
    ("copy_idempotent", {}, DOUBLED),
    ("copy_read_uncommitted", {}, Anomaly.PHANTOM),
    ("copy_with_threads", {}, Anomaly.NONMONOTONIC),
    ("count_state_in_memory", {}, Anomaly.UNDERCOUNT),
]
IN_OTHER_LANGUAGES = [
    ("Copy.java", None),
    ("CopyAutoCommit.java", DOUBLED),
    ("go/copy_transactional.go", None),
    ("go/copy_at_least_once.go", DOUBLED),
    ("copy_transactional.js", None),
    ("transfer_transactional.js", None),
    ("copy_at_least_once.js", DOUBLED),
    ("transfer_two_sends.js", TORN),
    ("copy_kcat.sh", DOUBLED),
]


def example(name):
    return [sys.executable, str(EXAMPLES / f"{name}.py")]


def in_its_language(name, directory):
    """Return the command for an example that is not in Python; skip the test without its compiler or its library."""
    file, kind = EXAMPLES / name, Path(name).suffix
    needs = {".java": "java", ".go": "go", ".js": "node", ".sh": "kcat"}[kind]
    if not shutil.which(needs):
        pytest.skip(f"there is no {needs}")
    if kind == ".java":
        return ["java", "-cp", os.pathsep.join(map(str, broker_jars())), str(file)]
    if kind == ".js":
        if subprocess.run(["node", "-e", 'require("kafkajs")']).returncode:
            pytest.skip("node finds no kafkajs: npm install kafkajs, and set NODE_PATH")
        return ["node", str(file)]
    if kind == ".go":
        subprocess.run(["go", "build", "-o", directory / "job", file.name], cwd=file.parent, check=True)
        return [str(directory / "job")]
    return [str(file)]


def judge_example(name, **options):
    if "aiokafka" in (EXAMPLES / f"{name}.py").read_text():
        pytest.importorskip("aiokafka")
    return judge(example(name), workload=name.partition("_")[0], **options)


@pytest.mark.long
def test_a_copy_in_transactions_is_valid_and_its_control_is_doubled():
    found = judge_example("copy_transactional", records=2_000, control=example("copy_auto_commit"))
    assert found.valid, found
    assert found.control.audit.counts[DOUBLED] > 0
    assert [strike.kind for strike in found.job.strikes] == ["kill"] * 4
    assert [strike.met.partition(";")[0] for strike in found.job.strikes] == [
        "killed before an answer",
        "killed before a write",
        "killed before the answer to a commit",
        "killed at the first sight of new results",
    ]


@pytest.mark.long
def test_a_copy_that_commits_first_loses_records_and_is_no_control():
    found = judge_example("copy_transactional", records=2_000, control=example("copy_commit_first"))
    assert found.verdict is Verdict.UNKNOWN, found
    assert found.job.audit.valid
    assert found.control.audit.counts[LOST] > 0


@pytest.mark.long
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("name", RIGHT)
def test_right_jobs_are_valid(name, seed):
    found = judge_example(name, seed=seed)
    assert found.valid, found


@pytest.mark.long
@pytest.mark.parametrize(("name", "options", "anomaly"), WRONG, ids=[name for name, *_ in WRONG])
def test_wrong_jobs_are_caught_for_their_reason(name, options, anomaly):
    found = judge_example(name, **options)
    assert found.verdict is Verdict.INVALID, found
    assert found.job.audit.counts[anomaly] > 0, found


@pytest.mark.long
@pytest.mark.soak
@pytest.mark.parametrize(("name", "anomaly"), IN_OTHER_LANGUAGES, ids=[name for name, _ in IN_OTHER_LANGUAGES])
def test_jobs_in_other_languages_are_judged_alike(name, anomaly, tmp_path):
    workload = "transfer" if name.startswith("transfer") else "copy"
    found = judge(in_its_language(name, tmp_path), workload=workload, patience=20 if name == "copy_kcat.sh" else 120)
    assert found.verdict is (Verdict.INVALID if anomaly else Verdict.VALID), found
    assert not anomaly or found.job.audit.counts[anomaly] > 0, found


@pytest.mark.long
def test_faults_of_the_network_leave_a_right_job_valid(monkeypatch):
    monkeypatch.setattr("labs.judging.job_session.TELL_EVERY", 1.0)
    told: list[str] = []
    found = judge_example("copy_transactional", kills=1, faults=("kill", "cut", "slow", "late-commit"), say=told.append)
    assert found.valid, found
    assert any("of 4,002 results are committed" in line for line in told), told
    met = {strike.kind: strike.met for strike in found.job.strikes}
    assert met.keys() == {"kill", "cut", "slow", "late-commit"}
    assert met["slow"] == "an answer came 3 s late"
    assert met["late-commit"].startswith("the end of a transaction came 3 s late; Kafka's answer: ")


@pytest.mark.long
def test_input_that_kafka_does_not_take_is_not_the_jobs_fault():
    with Broker(settings={"message.max.bytes": "2000"}) as kafka:
        found = judge_example("copy_transactional", size=5_000, bootstrap_servers=kafka.bootstrap_servers)
    assert found.verdict is Verdict.UNKNOWN, found
    assert "Kafka did not take a record of the input" in found.reason


@pytest.mark.long
@pytest.mark.soak
@pytest.mark.parametrize("options", [{"nodes": 3}, {"keys": 1, "rate": 300, "size": 20_000}], ids=["nodes", "keys"])
def test_a_right_job_is_valid_on_three_brokers_and_with_large_records_of_one_key(options):
    found = judge_example("copy_transactional", **options)
    assert found.valid, found
    assert len(found.job.strikes) == 4


@pytest.mark.long
def test_on_a_kafka_of_ones_own_nothing_is_left(broker):
    found = judge_example("copy_transactional", records=400, kills=1, bootstrap_servers=broker.bootstrap_servers)
    assert found.valid, found
    assert found.job.strikes[0].met.startswith("killed at the first sight")
    assert not found.job.remarks
    with admin(broker.bootstrap_servers) as client:  # a broker lists a topic until it has heard that it is gone
        eventually(lambda: not [name for name in client.list_topics() if str(name).startswith("judge-")])


@pytest.fixture
def session(broker, tmp_path):
    """Start a job without a proxy, and wait until it prints: `session(command) -> JobSession`."""
    sessions: list[JobSession] = []

    def session(command: list[str]) -> JobSession:
        name = f"judge-{uuid.uuid4().hex[:8]}"
        work = Work(broker.bootstrap_servers, f"{name}-source", f"{name}-sink", tmp_path / name, name)
        sessions.append(begun := JobSession(Job(command), work, Copy(40, 1, seed=1), None, patience=30))
        begun.start()
        wait_until_it_prints(begun)
        return begun

    yield session
    for each in sessions:
        assert each.process
        each.process.kill()  # `close` alone gives it ten seconds
        each.close()


def wait_until_it_prints(session):
    eventually(lambda: session.process.output())


AT_ONCE = Aim("terminate", moment=-1, delay=0.0)
IN_ORDER = "import signal; signal.signal(signal.SIGTERM, lambda *_: exit(3)); print('up', flush=True); signal.pause()"
TERMINATED = {
    "in order": ([sys.executable, "-c", IN_ORDER], r"it ended by itself with exit code 3 after \d\.\d s"),
    "no handler": (["sh", "-c", "echo up; sleep 996; true"], r"it was ended by SIGTERM after \d\.\d s"),
    "deaf": (["sh", "-c", "trap '' TERM; echo up; sleep 996; true"], "it did not end within 1 s and was killed"),
}


@pytest.mark.bench
@pytest.mark.parametrize("name", TERMINATED)
def test_a_termination_says_how_the_job_ended_and_starts_it_again(session, monkeypatch, name):
    monkeypatch.setattr("labs.judging.job_session.GRACE", 1.0)
    command, met = TERMINATED[name]
    terminated = session(command)
    first = terminated.process
    terminated.strike(AT_ONCE)
    assert re.fullmatch(f"on SIGTERM {met}; 0 results were committed", terminated.strikes[0].met)
    assert not first.has_group
    assert terminated.process.running


@pytest.mark.bench
def test_a_termination_is_no_ending_of_the_jobs_own_however_often(session):
    terminated = session([sys.executable, "-c", IN_ORDER])
    for _ in range(ENDINGS + 1):
        wait_until_it_prints(terminated)
        terminated.strike(AT_ONCE)
    terminated.tick()
    assert [strike.kind for strike in terminated.strikes] == ["terminate"] * (ENDINGS + 1)
    assert not terminated.endings.remarks()


@pytest.mark.bench
def test_a_termination_waits_for_what_the_job_started(session):
    child = "trap 'sleep 0.5; echo tidied up; exit' TERM; echo up; while :; do sleep 0.1; done"
    terminated = session(["sh", "-c", f'sh -c "{child}"; true'])
    first = terminated.process
    terminated.strike(AT_ONCE)
    assert "it was ended by SIGTERM after" in terminated.strikes[0].met
    assert "tidied up" in first.output()
    assert not terminated.endings.remarks()


@pytest.mark.bench
@pytest.mark.parametrize("kind", ["terminate", "kill", "pause", "cut"])
def test_a_job_that_ended_just_before_a_strike_has_ended_by_itself(session, kind):
    aim = replace(AT_ONCE, kind=kind)
    ended = session(["echo", "bye"])
    eventually(lambda: not ended.process.running)
    ended.strike(aim)
    assert ended.strikes[0].met == f"no {aim.kind}: it ended by itself with exit code 0 just before"
    assert ended.strikes[0].missed
    ended.tick()
    assert ended.endings.remarks() == ["it ended by itself with exit code 0 and was started again: it printed: bye"]


@pytest.mark.long
def test_a_right_job_is_valid_when_it_is_terminated_on_a_kafka_of_ones_own(broker):
    options = {"records": 400, "faults": ("terminate",), "bootstrap_servers": broker.bootstrap_servers}
    found = judge_example("copy_transactional", **options)
    assert found.valid, found
    [strike] = found.job.strikes
    assert strike.met.startswith("on SIGTERM it was ended by SIGTERM after ")
    assert not found.job.remarks


COPY_OF_41 = """
import os, signal, confluent_kafka
servers = {"bootstrap.servers": os.environ["KAFKA_BOOTSTRAP_SERVERS"]}
consumer = confluent_kafka.Consumer({**servers, "group.id": os.environ["GROUP"], "auto.offset.reset": "earliest"})
consumer.subscribe([os.environ["SOURCE_TOPIC"]])
producer = confluent_kafka.Producer(servers)
print("up", flush=True)
copied = 0
while copied < 41:
    record = consumer.poll(1)
    if record is not None and not record.error():
        producer.produce(os.environ["SINK_TOPIC"], record.value())
        copied += 1
producer.flush()
"""


@pytest.mark.bench
def test_a_record_that_comes_twice_after_all_results_is_seen(session):
    doubling = session([sys.executable, "-c", COPY_OF_41 + "signal.pause()"])
    with ThreadPoolExecutor(1) as beside:
        finishing = beside.submit(doubling.finish, doubling.workload.inputs)
        eventually(lambda: doubling.has_all)
        producer = Producer({"bootstrap.servers": doubling.work.bootstrap_servers})
        producer.produce(doubling.work.sink_topic, doubling.workload.inputs[0].value)
        producer.flush(30)
        finishing.result()
    assert len(doubling.watcher.outputs) == len(doubling.watcher.distinct) + 1 == 42


@pytest.mark.bench
def test_a_job_that_ends_after_its_last_result_has_ended_by_itself(session):
    ended = session([sys.executable, "-c", COPY_OF_41])
    ended.finish(ended.workload.inputs)
    assert ended.has_all
    assert "it ended by itself with exit code 0 and was started again" in ended.endings.remarks()[0]


@pytest.mark.bench
def test_a_job_that_ends_again_and_again_with_rubbish_is_not_waited_for_forever(session, monkeypatch):
    monkeypatch.setattr("labs.judging.job_session.TO_READ", 0.1)
    ending = session([sys.executable, "-c", "print('up', flush=True)\n" + RUBBISH.replace("input()", "")])
    ending.workload.last, ending.patience = set(), 8
    began = time.monotonic()
    with pytest.raises(EngineStopped, match="3 times without a new result"):
        ending.finish([])
    assert time.monotonic() - began < 30


def test_a_flood_is_not_read_to_its_end(monkeypatch):
    record = SimpleNamespace(partition=lambda: 0, offset=lambda: 0, value=lambda: bytes(1 << 20), error=lambda: None)
    monkeypatch.setattr("labs.judging.job_session.read_to_end", lambda *_: repeat(record))
    monkeypatch.setattr("labs.judging.job_session.wait_until_decided", lambda *_: {0: True})
    found = read(Work("", "source", "sink", Path(), "job"), Copy(40, 1, seed=1), [], None)
    assert found.error
    assert "MB, where the input has 0 MB; the rest was not read" in found.error


RUBBISH = """
import os, confluent_kafka
producer = confluent_kafka.Producer({"bootstrap.servers": os.environ["KAFKA_BOOTSTRAP_SERVERS"]})
producer.produce(os.environ["SINK_TOPIC"], "rubbish")
producer.flush()
input()
"""
FLOOD = """
import os, confluent_kafka
producer = confluent_kafka.Producer({"bootstrap.servers": os.environ["KAFKA_BOOTSTRAP_SERVERS"]})
while True:
    try:
        producer.produce(os.environ["SINK_TOPIC"], "rubbish")
    except BufferError:
        producer.poll(0.1)
"""
MISBEHAVING = {
    "exits": (["true"], "ended by itself with exit code 0, 3 times without a new result"),
    "hangs": (["sleep", "998"], "wrote nothing new for 5 s"),
    "floods": (["yes"], "it printed more than 16 MB"),
    "daemon": (["sh", "-c", "setsid sleep 997 & sleep 998"], "1 of its processes had left its process group"),
    "deaf": (["sh", "-c", "trap '' TERM; while :; do sleep 1; done"], "did not end within 10 s after SIGTERM"),
    "rubbish": ([sys.executable, "-c", RUBBISH], "the sink topic holds a record that is no expected result"),
}


@pytest.mark.long
@pytest.mark.parametrize("name", MISBEHAVING)
def test_a_job_that_misbehaves_gets_one_line_and_leaves_nothing(name):
    command, line = MISBEHAVING[name]
    before = set(psutil.pids())
    found = judge(command, records=40, kills=1, patience=5)
    assert found.verdict is (Verdict.INVALID if name == "rubbish" else Verdict.UNKNOWN)
    assert line.lower() in str(found).lower()
    left = [each for each in psutil.process_iter(["cmdline"]) if each.pid not in before]
    assert not [each for each in left if each.info["cmdline"] and each.info["cmdline"][-1] in ("997", "998")]


@pytest.mark.long
def test_a_job_that_writes_without_end_is_stopped():
    found = judge([sys.executable, "-c", FLOOD], records=40, kills=1, patience=60)
    assert found.verdict is Verdict.INVALID
    assert "records, where 42 are expected" in found.reason


OTHER_TOPIC = """
import os, confluent_kafka
producer = confluent_kafka.Producer({"bootstrap.servers": os.environ["KAFKA_BOOTSTRAP_SERVERS"]})
for topic in (os.environ["SOURCE_TOPIC"], "a-topic-of-its-own"):
    producer.produce(topic, "where nobody looks")
producer.flush()
input()
"""


@pytest.mark.long
def test_what_a_job_writes_elsewhere_is_a_remark():
    found = judge([sys.executable, "-c", OTHER_TOPIC], records=4_000, kills=1)  # ends at once, so it runs three times
    assert "it wrote 3 records into its source topic" in found.job.remarks
    assert "it wrote into new topics, which are not judged: a-topic-of-its-own" in found.job.remarks


def test_a_script_that_may_not_be_executed_is_told_from_one_that_is_not_there(tmp_path):
    script = tmp_path / "job.py"
    script.write_text("print('hello')")
    with pytest.raises(ValueError, match=r"job\.py is not executable: name its interpreter, .* or chmod \+x it"):
        judge([str(script)])


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["--", "./there-is-no-such-job"], "there is no program './there-is-no-such-job'"),
        (["--faults", "fire", "--", "true"], "no fault is called 'fire'"),
        (["--kills", "9999", "--", "true"], "too few for 9999 strikes"),
        (["--rate", "5000", "--", "true"], "at 5000 a second: give --records 50000 or more"),
        (["--workload", "count", "--size", "9", "--", "true"], "to the workload copy only"),
        (["--control", "./no-control", "--", "true"], "there is no program './no-control'"),
        (["--control", "", "--", "true"], "there is no program ''"),
        (["--control", "echo 'it", "--", "true"], "no closing quotation; expected a command"),
        (["--kills", "2", "--faults", "pause", "--", "true"], "--faults does not contain kill"),
        (["--bootstrap-servers", "127.0.0.1:1", "--faults", "cut", "--", "true"], "these need the lab's own Kafka"),
        (["--html", "/there/is/no/such/directory/page.html", "--", "true"], "cannot be written"),
    ],
)
def test_a_mistake_is_one_line_and_unknown(capsys, arguments, line):
    assert main(["judge", *arguments]) == 2
    error = capsys.readouterr().err.strip()
    assert line in error
    assert "\n" not in error
