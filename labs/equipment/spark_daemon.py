"""One process of a standalone Spark cluster, a master or a worker, as a child of this process.

It leads a process group, to which the executors that a worker starts belong: one signal ends them all, and
none outlives this process, however it ends.
"""

from __future__ import annotations

import contextlib
import os
import time
from pathlib import Path

import psutil
import pyspark

from labs.equipment.child_environment import for_program
from labs.equipment.child_process import ChildProcess
from labs.equipment.java import find_java
from labs.equipment.node import LOG4J, QUICK_SPARK
from labs.equipment.ports import PortTaken

SPARK_HOME = Path(pyspark.__file__).parent
OPTIONS = (
    f"-Dlog4j2.configurationFile={LOG4J.as_uri()}",
    "-Dlabs.log.level=info",
    "-Dspark.master.rest.enabled=false",
    "-Dspark.port.maxRetries=0",  # a master on another port than was asked for would never be found
    "-Dspark.deploy.maxExecutorRetries=-1",  # an executor that was killed is replaced, every time
    *QUICK_SPARK,
)
EXECUTOR = "org.apache.spark.executor.CoarseGrainedExecutorBackend"


class ClusterError(RuntimeError):
    """A Spark cluster could not be started, or was asked for something that it cannot do."""


class Daemon:
    """A Spark daemon: `class_name` with `arguments`, run in `directory` at `host`; `temporary` is deleted if we die.

    It is ready when its log says `ready`.
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
        self.name, self._ready = name, ready
        self.directory, self.log_file = directory, directory / f"{name}.log"
        command = [str(SPARK_HOME / "bin" / "spark-class"), class_name, *arguments]
        self._process = ChildProcess(
            command, self.log_file, temporary, cwd=directory, env=_environment(directory, host)
        )

    @property
    def pid(self) -> int | None:
        """The process id while the process exists, else None."""
        return self._process.pid

    def wait_ready(self, timeout: float = 60) -> None:
        """Wait until the log says that it is ready. Raises ClusterError with the log's last lines."""
        deadline = time.monotonic() + timeout
        while self._ready not in self._process.output():
            if self.pid is None:
                kind = PortTaken if "Address already in use" in self._process.output() else ClusterError
                raise kind(f"the {self.name} of Spark ended while starting.\n{self.last_lines()}")
            if time.monotonic() > deadline:
                raise ClusterError(f"the {self.name} of Spark was not ready within {timeout:g} s.\n{self.last_lines()}")
            time.sleep(0.02)

    def executors(self) -> list[psutil.Process]:
        """Return this worker's executor processes that run now, in the order in which they started."""
        # By group: an executor whose worker was killed is nobody's child, and runs until it notices.
        group = [process for process in psutil.process_iter() if _leader(process) == self._process.group]
        return sorted(filter(is_executor, group), key=_start_time)

    def kill(self) -> None:
        """SIGKILL the process and all that it started, and wait until they are gone."""
        self._process.kill()

    def last_lines(self, count: int = 15) -> str:
        """Return the end of what the process logged, less the routine, for an error message."""
        return self._process.last_lines(count)


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
    """Tell whether it is an executor of Spark that runs; one that ends meanwhile is none."""
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
