"""A real Spark cluster for the lab: a standalone master and its workers on loopback, from pip's pyspark.

A session uses it when SPARK_MASTER is its `master`: then the tasks run in executors, processes of their own, which
can be killed. The processes never outlive this one, however it ends. An executor whose worker was killed notices
and ends, or, if it was still starting, ends with its session. All are on one machine and see the same files: a
checkpoint in a local directory works here, and on no cluster of several machines.
"""

from __future__ import annotations

import atexit
import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path

import psutil

from labs.equipment.eventually import eventually
from labs.equipment.ports import PortTaken, free_ports, require_free
from labs.equipment.spark_daemon import ClusterError, Daemon

DEPLOY = "org.apache.spark.deploy"


class SparkCluster:
    """A master and `workers` workers. Each worker has `cores` and `memory` for executors: one executor of 1 GB.

    `master` is what SPARK_MASTER must be; its port is `port`, or a free one. `hosts` are the workers' addresses, in
    turn: Spark takes each for a machine of its own. Linux has all of 127.0.0.0/8.
    """

    def __init__(
        self,
        workers: int = 2,
        cores: int = 1,
        memory: str = "1g",
        port: int | None = None,
        hosts: Sequence[str] = ("127.0.0.1",),
    ):
        if workers < 1:
            raise ClusterError(f"a cluster has one worker or more, not {workers}")
        self._count, self._cores, self._memory, self._given_port = workers, cores, memory, port
        self._hosts = hosts
        self._port = port or free_ports(1)[0]
        self._directory: Path | None = None
        self._master: Daemon | None = None
        self.workers: list[Daemon] = []

    @property
    def master(self) -> str:
        """The master's address, as SPARK_MASTER and spark-submit's --master take it."""
        return f"spark://127.0.0.1:{self._port}"

    @property
    def daemons(self) -> list[Daemon]:
        """The master, then the workers; nothing before the start."""
        return [self._master, *self.workers] if self._master else []

    def start(self) -> SparkCluster:
        """Start master and workers and wait until every worker is registered. Raises ClusterError."""
        if self._master:
            return self
        self._directory = Path(tempfile.mkdtemp(prefix="labs-spark-cluster-"))
        atexit.register(self.close)
        try:
            self._master = self._start_master()
            self.workers = [self._start_worker(n) for n in range(self._count)]
            for worker in self.workers:
                worker.wait_ready()
        except BaseException:
            self.close()
            raise
        return self

    def executor_pids(self) -> list[int]:
        """Return the process ids of the executors that run now, worker by worker; none while no session uses them."""
        return [executor.pid for executor in self._executors()]

    def kill_executor(self, n: int = 0) -> int:
        """SIGKILL the n-th executor, counting round, and return its process id. Its worker starts another.

        Raises ClusterError if there is none.
        """
        executors = self._executors()
        if not executors:
            raise ClusterError(f"no executor runs at {self.master}; one does while a session or a job has it as master")
        victim = executors[n % len(executors)]
        victim.kill()  # by its start time too: its id may be somebody else's by now
        eventually(lambda: victim.pid not in self.executor_pids())
        return victim.pid

    def _executors(self) -> list[psutil.Process]:
        return [executor for worker in self.workers for executor in worker.executors()]

    def close(self) -> None:
        """End every process, executors too, and delete what they left."""
        atexit.unregister(self.close)
        for daemon in reversed(self.daemons):
            daemon.kill()
        self._master, self.workers = None, []
        if self._directory:
            shutil.rmtree(self._directory, ignore_errors=True)

    def _start_master(self) -> Daemon:
        for attempt in range(3):
            options = ["--host", "127.0.0.1", "--port", str(self._port), "--webui-port", "0"]
            try:
                require_free(self._port)
                self._master = self._daemon("master", "master.Master", options, "New state: ALIVE")
                self._master.wait_ready()
                return self._master
            except PortTaken as error:
                if self._given_port or attempt == 2:
                    raise ClusterError(str(error)) from error
                self._port = free_ports(1)[0]  # another program was quicker, and nobody knows ours yet
        raise AssertionError("unreachable")

    def _start_worker(self, n: int) -> Daemon:
        host = self._hosts[n % len(self._hosts)]
        options = ["--host", host, "--port", "0", "--webui-port", "0", "--cores", str(self._cores)]
        options += ["--memory", self._memory, "--work-dir", "work", self.master]
        return self._daemon(f"worker-{n}", "worker.Worker", options, "Successfully registered with master", host)

    def _daemon(self, name: str, class_name: str, options: list[str], ready: str, host: str = "127.0.0.1") -> Daemon:
        assert self._directory, "started"
        directory = self._directory / name
        directory.mkdir(exist_ok=True)
        return Daemon(name, f"{DEPLOY}.{class_name}", options, ready, directory, self._directory, host)

    def __enter__(self) -> SparkCluster:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.close()
