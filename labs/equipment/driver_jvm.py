"""The JVM of a Spark driver, started as PySpark starts it, but in the lab's environment and with a time limit.

PySpark itself waits forever for a JVM that fails without ending, or that ends with status 0. Guarantee: the JVM ends
with this process, however that ends, at most half a minute later.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from threading import Timer

import psutil
from py4j.java_gateway import JavaGateway
from pyspark.java_gateway import launch_gateway
from pyspark.serializers import UTF8Deserializer, read_int

from labs.equipment.child_environment import OF_A_GATEWAY
from labs.equipment.child_process import ChildReaper

FAILED = b'Exception in thread "main"'
PATIENCE = 30  # seconds for a JVM to end by itself
# Ctrl-C is for Python, which asks the JVM to end.
DEAF_TO_CTRL_C = ("/bin/sh", "-c", """trap '' INT; exec "$@" """, "sh")


class DriverJvm:
    """`spark-submit` of the Spark in `home` with `settings`, printing to `log`.

    It is in this process's group, so that a signal to a job also reaches its JVM.
    """

    def __init__(self, home: str, settings: Mapping[str, str], environment: Mapping[str, str], log: Path):
        self.given_up, self._log, self._log_start = False, log, log.stat().st_size if log.exists() else 0
        self._directory = Path(tempfile.mkdtemp(prefix="gateway-", dir=log.parent))
        self._address = self._directory / "address"
        command = [*DEAF_TO_CTRL_C, f"{home}/bin/spark-submit"]
        command += [part for name, value in settings.items() for part in ("--conf", f"{name}={value}")]
        own = {"SPARK_CONNECT_MODE": "0", "_PYSPARK_DRIVER_CONN_INFO_PATH": str(self._address)}
        end, ours = os.pipe()  # it ends when nobody holds our end
        self._reaper = ChildReaper(patience=PATIENCE, group=False)
        try:
            with log.open("ab") as printed:
                self.process: subprocess.Popen = self._reaper.start(
                    [*command, "pyspark-shell"], stdin=end, stdout=printed, stderr=printed, env={**environment, **own}
                )
            self.process.stdin = self._stdin = os.fdopen(ours, "wb")
        except BaseException:
            self._reaper.release()
            os.close(ours)
            raise
        finally:
            os.close(end)

    def connect(self, interrupted: Callable[[], bool]) -> JavaGateway | None:
        """Wait until it answers, and return PySpark's connection to it; None if it ends before, or if `interrupted`."""
        while not self._address.exists():
            if self.process.poll() is not None or interrupted() or self._failed():
                return None
            time.sleep(0.02)
        with self._address.open("rb") as address:
            values = str(read_int(address)), UTF8Deserializer().loads(address)
        with _variables(dict(zip(OF_A_GATEWAY, values, strict=True))):
            gateway = launch_gateway()
        gateway.proc = self.process
        return gateway

    def _failed(self) -> bool:
        """Tell whether its main thread has failed: other threads may keep the JVM alive forever."""
        if FAILED not in self._log.read_bytes()[self._log_start :]:
            return False
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(2)  # until it has said why
        return True

    @contextlib.contextmanager
    def given_up_after(self, seconds: float) -> Iterator[Timer]:
        """Kill the JVM when the block has lasted that long, so that no caller waits forever for its answer."""
        timer = Timer(seconds, self._give_up)
        timer.daemon = True
        timer.start()
        try:
            yield timer
        finally:
            timer.cancel()

    def _give_up(self) -> None:
        self.given_up = True
        self.kill()

    def end(self) -> None:
        """Let it end, and kill it if it does not."""
        with contextlib.suppress(OSError, subprocess.TimeoutExpired):
            self._stdin.close()  # at its end, the JVM ends
            self.process.wait(PATIENCE)
        self.kill()

    def kill(self) -> None:
        """SIGKILL it, and what Spark's scripts have started before they became the JVM."""
        with contextlib.suppress(psutil.NoSuchProcess):
            family = psutil.Process(self.process.pid)
            for each in (family, *family.children(recursive=True)):
                with contextlib.suppress(psutil.Error):
                    each.kill()
        self.process.wait()
        self._reaper.release()


@contextlib.contextmanager
def _variables(own: dict[str, str]) -> Iterator[None]:
    os.environ |= own
    try:
        yield
    finally:
        for name in own:
            del os.environ[name]
