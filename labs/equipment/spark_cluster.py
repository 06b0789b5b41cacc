"""A real Spark cluster for the lab: a standalone master and its workers on loopback, from pip's pyspark.

A session uses it when SPARK_MASTER is its `master`: then the tasks run in executors, processes of their own, which
can be killed. The processes never outlive this one, however it ends. An executor whose worker was killed notices
that and ends; if it was still starting, it ends with its session. All processes see the same files: a checkpoint in a
local directory works here, but not on a cluster of several machines.

A master or a worker leads a process group. A worker's executors belong to its group, so that one signal ends all.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import shutil
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import psutil
import pyspark

from labs.equipment.child_process import ChildProcess, for_program
from labs.equipment.java import find_java
from labs.equipment.node import LOG4J, QUICK_SPARK
from labs.equipment.ports import PortTaken, free_ports, require_free
from labs.equipment.waiting import eventually

SPARK_HOME = Path(pyspark.__file__).parent
OPTIONS = (
    f"-Dlog4j2.configurationFile={LOG4J.as_uri()}",
    "-Dlabs.log.level=info",
    "-Dspark.master.rest.enabled=false",
    "-Dspark.port.maxRetries=0",  # nobody would find a master on another port than the given one
    "-Dspark.deploy.maxExecutorRetries=-1",  # an executor that was killed is replaced, every time
    *QUICK_SPARK,
)
EXECUTOR = "org.apache.spark.executor.CoarseGrainedExecutorBackend"


class ClusterError(RuntimeError):
    """A Spark cluster could not be started, or it cannot do what was requested."""


class Daemon(ChildProcess):
    """A Spark daemon: `class_name` with `arguments`, run in `directory` at `host`; ready when its log contains `ready`.

    If the process that started the daemon dies, `temporary` is deleted.
    """

    def __init__(
        self,
        name: str,
        class_name: str,
        arguments: list[str],
        ready: str,
        directory: Path,
        temporary: Path,
        host: str = "127.0.0.1",
    ):
        self.name, self.directory, self._ready = name, directory, ready
        command = [str(SPARK_HOME / "bin" / "spark-class"), class_name, *arguments]
        environment = _environment(directory, host)
        super().__init__(command, directory / f"{name}.log", temporary, cwd=directory, env=environment)

    def wait_ready(self, timeout: float = 60) -> None:
        """Wait until the log says that it is ready. Raises ClusterError with the log's last lines."""
        deadline = time.monotonic() + timeout
        while self._ready not in self.output():
            if not self.running:
                kind = PortTaken if "Address already in use" in self.output() else ClusterError
                raise kind(f"the {self.name} of Spark ended while starting.\n{self.last_lines()}")
            if time.monotonic() > deadline:
                raise ClusterError(f"the {self.name} of Spark was not ready within {timeout:g} s.\n{self.last_lines()}")
            time.sleep(0.02)

    def executors(self) -> list[psutil.Process]:
        """Return this worker's executor processes that run now, in the order in which they started."""
        # By group: an executor whose worker was killed is not its child any more, and runs until it notices.
        group = [process for process in psutil.process_iter() if _leader(process) == self.group]
        return sorted(filter(is_executor, group), key=_start_time)


def _environment(directory: Path, host: str) -> dict[str, str]:
    return for_program(
        JAVA_HOME=str(find_java().home),
        SPARK_HOME=str(SPARK_HOME),
        SPARK_CONF_DIR=str(directory),
        SPARK_LOCAL_DIRS=str(directory),
        SPARK_LOCAL_IP=host,
        SPARK_DAEMON_MEMORY="256m",
        SPARK_DAEMON_JAVA_OPTS=" ".join(OPTIONS),
        PYTHONPATH=os.environ.get("PYTHONPATH", ""),  # the executors' Python finds its modules there
    )


def is_executor(process: psutil.Process) -> bool:
    """Tell whether it is a Spark executor that still runs."""
    with contextlib.suppress(psutil.Error):
        return EXECUTOR in process.cmdline() and process.status() != psutil.STATUS_ZOMBIE
    return False


def _leader(process: psutil.Process) -> int:
    with contextlib.suppress(OSError):
        return os.getpgid(process.pid)
    return 0


def _start_time(process: psutil.Process) -> float:
    with contextlib.suppress(psutil.Error):
        return process.create_time()
    return 0.0


DEPLOY = "org.apache.spark.deploy"


class SparkCluster:
    """A master and `workers` workers. Each has `cores` and `memory` for executors: by default one executor of 1 GB.

    `master` is the value for SPARK_MASTER; its port is `port`, or a free one. `hosts` are the workers' addresses, in
    turn: to Spark, each is a machine of its own. Linux has all of 127.0.0.0/8.
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

    def kill_executor(self) -> int:
        """SIGKILL the first executor, and return its process id. Its worker starts another.

        Raises ClusterError if there is none.
        """
        executors = self._executors()
        if not executors:
            raise ClusterError(f"no executor runs at {self.master}; one does while a session or a job has it as master")
        victim = executors[0]
        victim.kill()  # psutil checks its start time: another process may have its id by now
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
                self._port = free_ports(1)[0]  # another program took the port; nobody knows ours yet
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
