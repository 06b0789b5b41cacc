"""One Kafka process: a KRaft node that is controller and broker in one JVM, as a child of this process."""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from labs.equipment.child_environment import for_program
from labs.equipment.child_process import ChildProcess, last_lines
from labs.equipment.class_archive import archive_options
from labs.equipment.fencing import controller_properties, sees_it_fenced
from labs.equipment.formatted import format_from_kept, is_formatted, keep_format
from labs.equipment.jars import broker_jars
from labs.equipment.java import find_java
from labs.equipment.ports import PortTaken, require_free

LOG4J = Path(__file__).with_name("log4j2.properties")
TLS_ALERT = b"\x15\x03"  # what a TLS server says to somebody who speaks anything else
TEMPORARY = "tmp"  # Java's, in the directory
CONFIG = "server.properties"
CONTROLLER_CONFIG = "controller.properties"
CLEAN_ENDS = (0, 128 + signal.SIGTERM, -signal.SIGTERM)
CONTROLLER_ATTEMPTS = 5
LONGEST_PREPARATION = 120  # seconds
RUNNING = "running"  # a file that only a clean end removes
# C1 only: starts in half the time. A benchmark turns it off, since a long run is slower with it.
QUICK_START = ("-XX:TieredStopAtLevel=1",)
QUICK_SPARK = (*QUICK_START, "-XX:+UseSerialGC")  # and a collector that starts no threads, which a broker always has
# On a full disk a broker starts, answers, and dies of its first write.
LEAST_SPACE = 100 << 20


class BrokerError(RuntimeError):
    """A broker could not be started, or was asked for something that it cannot do."""


class Node:
    """A Kafka node with a data directory of its own, which outlives restarts of the process.

    `properties` is the node's server.properties. It listens on 127.0.0.1: for clients at `port`, for its peers
    at `quorum_port`.
    """

    def __init__(
        self,
        node_id: int,
        directory: Path,
        port: int,
        quorum_port: int,
        properties: Mapping[str, str],
        cluster_id: str,
        jvm_options: tuple[str, ...] = QUICK_START,
        temporary: Path | None = None,
    ):
        self.node_id, self.port, self.quorum_port = node_id, port, quorum_port
        self.directory, self.log_file = directory, directory / "broker.log"
        # Relative to the directory, where the process runs: Kafka splits a path at commas and reads it as Latin-1.
        self._properties = dict(properties, **{"log.dirs": "data"})
        self._cluster_id, self._jvm_options, self._temporary = cluster_id, jvm_options, temporary
        self._process: ChildProcess | None = None

    @property
    def pid(self) -> int | None:
        """The process id while the process exists (paused or not), else None."""
        return self._process.pid if self._process else None

    def launch(self) -> None:
        """Start the process, formatting the data directory first if it is new. Does not wait: see `wait_ready`."""
        if self.pid:
            self.signal(signal.SIGCONT)
            return
        require_free(self.port)
        require_free(self.quorum_port)
        try:
            self.directory.mkdir(parents=True, exist_ok=True)
            with self._locked() as lock:
                self._prepare()
                if self._died_alone():
                    self._fence_the_dead()
                (self.directory / RUNNING).touch()
                self._process = self._start("kafka.Kafka", CONFIG, pass_fds=[lock])
        except OSError as error:
            raise BrokerError(f"the broker's directory {self.directory} cannot be used: {error}") from error

    def wait_ready(self, timeout: float = 180) -> None:
        """Wait until the node answers on its port. Raises BrokerError with the log's last lines."""
        deadline = time.monotonic() + timeout
        # Its own word as well: on a port that was taken at the last moment, another broker answers.
        while not (answers(self.port) and self._process and "Kafka Server started" in self._process.output()):
            if self.pid is None:
                lines = self.last_lines()
                kind = PortTaken if "Address already in use" in lines else BrokerError
                raise kind(f"the broker ended while starting.\n{lines}")
            if time.monotonic() > deadline:
                self.signal(signal.SIGKILL)
                raise BrokerError(f"the broker did not answer within {timeout:g} s.\n{self.last_lines()}")
            time.sleep(0.02)

    def signal(self, number: int) -> None:
        """Send a signal to the process that this object started. After a fatal one, `wait_gone`."""
        if self._process is None:
            return
        if number == signal.SIGSTOP:
            self._process.pause()
        else:
            self._process.signal(number)
        if number == signal.SIGTERM:
            self._process.resume()  # while paused it would not hear

    def wait_gone(self, timeout: float = 30) -> None:
        """Wait until the process has ended; kill it if that takes more than `timeout` seconds."""
        while self._process and self.pid:
            try:
                self._process.wait(timeout)
            except subprocess.TimeoutExpired:
                self._process.kill()
        if self._process and self._process.exit_code in CLEAN_ENDS:
            (self.directory / RUNNING).unlink(missing_ok=True)

    def last_lines(self, count: int = 15) -> str:
        """Return the end of what the process logged, less what seldom tells why it ended, for an error message."""
        return self._process.last_lines(count) if self._process else "It was never started."

    @contextlib.contextmanager
    def _locked(self) -> Iterator[int]:
        """Lock the directory, here and then in the process that inherits the file descriptor, as long as it lives.

        Kafka has a lock too, but takes it only after it has written to its metadata log.
        """
        with (self.directory / "lock").open("w") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise BrokerError(
                    f"the broker's directory {self.directory} is in use by another broker; end that one, or choose "
                    "another directory"
                ) from None
            yield lock.fileno()

    def _prepare(self) -> None:
        free = shutil.disk_usage(self.directory).free
        if free < LEAST_SPACE:
            raise BrokerError(
                f"the disk of {self.directory} has {free >> 20} MB left, and a broker needs {LEAST_SPACE >> 20} MB; "
                "free some, or give it a directory on another disk (TMPDIR says where a temporary one is made)"
            )
        shutil.rmtree(self.directory / TEMPORARY, ignore_errors=True)  # a JVM that was killed has left some there
        (self.directory / TEMPORARY).mkdir()
        _write_properties(self.directory / CONFIG, self._properties)
        data = self.directory / "data"
        if is_formatted(data) or format_from_kept(self._properties, self._cluster_id, data):
            return
        formatting = self._start(
            "kafka.tools.StorageTool", "format", f"--cluster-id={self._cluster_id}", "-c", CONFIG, "-g"
        )
        try:
            failed = formatting.finish(LONGEST_PREPARATION)
        except subprocess.TimeoutExpired:
            failed = 1
        if failed:
            found = last_lines(formatting.output()) or f"  it took more than {LONGEST_PREPARATION} s"
            raise BrokerError(f"the broker's directory {self.directory} cannot be prepared:\n{found}")
        keep_format(self._properties, data)

    def _died_alone(self) -> bool:
        """Tell whether the node was killed, and no other node was there to notice."""
        return "," not in self._properties["controller.quorum.voters"] and (self.directory / RUNNING).exists()

    def _fence_the_dead(self) -> None:
        """Let a controller alone note that the broker is dead; `labs.equipment.fencing` says why."""
        _write_properties(self.directory / CONTROLLER_CONFIG, controller_properties(self._properties, self.quorum_port))
        for _ in range(CONTROLLER_ATTEMPTS):
            self._process = controller = self._start("kafka.Kafka", CONTROLLER_CONFIG)
            fenced = sees_it_fenced(controller, self.directory / "data" / "__cluster_metadata-0")
            controller.signal(signal.SIGTERM)
            controller.wait(30)
            if fenced:
                return
        raise BrokerError(
            f"the broker was killed, and its controller, which must note that first, ended {CONTROLLER_ATTEMPTS} times "
            f"before it had; start again.\n{self.last_lines()}"
        )

    def _start(self, main: str, *arguments: str, **options: Any) -> ChildProcess:
        command = [
            find_java().executable,
            *("-Xms64m", "-Xmx768m", "-XX:+UseSerialGC", *self._jvm_options, *archive_options("broker")),
            f"-Dlog4j2.configurationFile={LOG4J.as_uri()}",
            "-Dlabs.log.level=info",
            f"-Djava.io.tmpdir={self.directory.absolute() / TEMPORARY}",
            "-Djava.awt.headless=true",
            *("-cp", os.pathsep.join(map(str, broker_jars())), main, *arguments),
        ]
        return ChildProcess(command, self.log_file, self._temporary, cwd=self.directory, env=for_program(), **options)


def answers(port: int) -> bool:
    """Tell whether a Kafka broker completes an ApiVersions exchange on the port, or asks for TLS there."""
    request = b"\x00\x12\x00\x00\x00\x00\x00\x01\xff\xff"  # ApiVersions v0, correlation id 1, no client id
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=1) as connection:
            connection.sendall(len(request).to_bytes(4, "big") + request)
            answer = connection.recv(8)
            return answer[4:] == b"\x00\x00\x00\x01" or answer[:2] == TLS_ALERT
    except OSError:
        return False


def _write_properties(file: Path, properties: Mapping[str, str]) -> None:
    escaped = {key: str(value).replace("\\", "\\\\") for key, value in properties.items()}
    file.write_text("".join(f"{key}={value}\n" for key, value in escaped.items()))
