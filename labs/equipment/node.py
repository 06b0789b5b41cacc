"""One Kafka process: a KRaft node that is controller and broker in one JVM, as a child of this process."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path

from labs.equipment.jars import broker_jars
from labs.equipment.java import find_java
from labs.equipment.leash import Leash

LOG4J = Path(__file__).with_name("log4j2.properties")
# C1 only: starts in half the time. A benchmark turns it off, since a long run is slower with it.
QUICK_START = ("-XX:TieredStopAtLevel=1",)


class BrokerError(RuntimeError):
    """A broker could not be started, or was asked for something that it cannot do."""


class Node:
    """A Kafka node with a data directory of its own, which outlives restarts of the process.

    `properties` is the node's server.properties; `port` is where clients reach it on 127.0.0.1.
    """

    def __init__(
        self,
        node_id: int,
        directory: Path,
        port: int,
        properties: Mapping[str, str],
        cluster_id: str,
        jvm_options: tuple[str, ...] = QUICK_START,
        temporary: Path | None = None,
    ):
        self.node_id, self.port = node_id, port
        self.directory, self.log_file = directory, directory / "broker.log"
        self._config = directory / "server.properties"
        self._properties = dict(properties, **{"log.dirs": str(directory / "data")})
        self._cluster_id, self._jvm_options, self._temporary = cluster_id, jvm_options, temporary
        self._process: subprocess.Popen | None = None
        self._leash: Leash | None = None

    @property
    def pid(self) -> int | None:
        """The process id while the process exists (paused or not), else None."""
        return self._process.pid if self._process and self._process.poll() is None else None

    def launch(self) -> None:
        """Start the process, formatting the data directory first if it is new. Does not wait: see `wait_ready`."""
        if self.pid:
            return
        require_free(self.port)
        try:
            self.directory.mkdir(parents=True, exist_ok=True)
            self._config.write_text("".join(f"{k}={_escaped(v)}\n" for k, v in self._properties.items()))
            if not (self.directory / "data" / "meta.properties").exists():
                self._format()
            with self.log_file.open("ab") as log:
                self._process = subprocess.Popen(
                    self._java("kafka.Kafka", str(self._config)),
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    start_new_session=True,  # Ctrl-C is for this process; it stops the broker in its own time
                )
        except OSError as error:
            raise BrokerError(f"the broker's directory {self.directory} cannot be used: {error}") from error
        self._leash = Leash(self._process.pid, self._temporary)

    def wait_ready(self, timeout: float = 60) -> None:
        """Wait until the node answers on its port. Raises BrokerError with the log's last lines."""
        deadline = time.monotonic() + timeout
        while not answers(self.port):
            if self.pid is None:
                raise BrokerError(f"the broker ended while starting.\n{self.last_lines()}")
            if time.monotonic() > deadline:
                self.signal(signal.SIGKILL)
                raise BrokerError(f"the broker did not answer within {timeout:g} s.\n{self.last_lines()}")
            time.sleep(0.02)

    def signal(self, number: int) -> None:
        """Send a signal to the process that this object started; after a fatal one, wait until it is gone."""
        if self.pid is None:
            return
        self._process.send_signal(number)
        if number in (signal.SIGKILL, signal.SIGTERM):
            try:
                self._process.wait(timeout=30)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
        if self._process.returncode is not None and self._leash:
            self._leash.release()
            self._leash = None

    def last_lines(self, count: int = 15) -> str:
        """Return the end of the node's log, for an error message."""
        with contextlib.suppress(OSError):
            lines = self.log_file.read_text(errors="replace").splitlines()[-count:]
            return "\n".join([f"Last lines of {self.log_file}:", *(f"  {line}" for line in lines)])
        return "It left no log."

    def _format(self) -> None:
        formatted = subprocess.run(
            self._java("kafka.tools.StorageTool", "format", "-t", self._cluster_id, "-c", str(self._config), "-g"),
            capture_output=True,
            text=True,
        )
        if formatted.returncode:
            said = (formatted.stdout + formatted.stderr).strip()[-2000:]
            raise BrokerError(f"the broker's directory {self.directory} cannot be formatted: {said}")

    def _java(self, main: str, *arguments: str) -> list[str]:
        options = ["-Xms64m", "-Xmx768m", "-XX:+UseSerialGC", *self._jvm_options]
        options += [
            f"-Dlog4j2.configurationFile={LOG4J}",
            "-Dlabs.log.level=info",
            "-Djava.awt.headless=true",
        ]
        class_path = os.pathsep.join(map(str, broker_jars()))
        return [find_java().executable, *options, "-cp", class_path, main, *arguments]


def free_ports(count: int) -> list[int]:
    """Return `count` distinct ports that were free on 127.0.0.1 a moment ago."""
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in sockets]


def require_free(port: int) -> None:
    """Raise BrokerError if something already listens on the port."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError as error:
            raise BrokerError(
                f"port {port} on 127.0.0.1 is in use by another program; choose another port or end that program"
            ) from error


def answers(port: int) -> bool:
    """Tell whether a Kafka broker completes an ApiVersions exchange on the port."""
    request = b"\x00\x12\x00\x00\x00\x00\x00\x01\xff\xff"  # ApiVersions v0, correlation id 1, no client id
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=1) as connection:
            connection.sendall(len(request).to_bytes(4, "big") + request)
            return connection.recv(8)[4:] == b"\x00\x00\x00\x01"
    except OSError:
        return False


def _escaped(value: str) -> str:
    return str(value).replace("\\", "\\\\")
