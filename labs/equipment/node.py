"""One Kafka process: a KRaft node that is controller and broker in one JVM, as a child of this process.

Before a killed broker starts again, a process that is only a controller notes that the broker is dead: otherwise Kafka
4.3.1 loses commits (KAFKA-20734; more in docs/sink.md). The restarted broker would still be leader by its old
registration, and continue transactions whose commit was decided but not yet written to the partitions. Then that
registration is fenced, and the partitions have no leader for a moment: the transaction coordinator treats them as
deleted, skips them and reports the transaction as complete. Its records stay open.

Limitations: this is for one node. In a larger cluster the other nodes notice that one is dead; but if all in-sync
replicas of a partition are killed at once, commits can still be lost.

A new broker's directory begins with two files, which Kafka's own tool (`kafka-storage format`) writes only once, since
each call starts a JVM. `meta.properties` has the node's ids, and this module writes it for each node.
`bootstrap.checkpoint` has the features of a new cluster, which depend on Kafka's version and on whether unstable
features are enabled, so it is kept in a cache. An incomplete file is not used; the tool is then called again.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import shutil
import signal
import socket
import subprocess
import time
import uuid
from base64 import urlsafe_b64encode
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from labs.equipment.child_process import ChildProcess, for_program, last_lines
from labs.equipment.class_archive import archive_options
from labs.equipment.jars import KAFKA_VERSION, broker_jars
from labs.equipment.java import find_java, lab_cache
from labs.equipment.ports import PortTaken, require_free
from labs.equipment.waiting import eventually

BROKER_ONLY = {"process.roles", "listeners", "advertised.listeners", "inter.broker.listener.name"}


def controller_properties(properties: Mapping[str, str], quorum_port: int) -> dict[str, str]:
    """Return the node's properties for a process that is only its controller, and that fences a dead broker fast."""
    return {
        **{key: value for key, value in properties.items() if key not in BROKER_ONLY},
        "process.roles": "controller",
        "listeners": f"CONTROLLER://127.0.0.1:{quorum_port}",
        "broker.session.timeout.ms": "200",
        "broker.heartbeat.interval.ms": "100",
    }


def sees_it_fenced(controller: ChildProcess, metadata: Path) -> bool:
    """Wait until the controller has fenced the broker, or sees that it is fenced; False if the controller has ended.

    `metadata` is the directory of Kafka's metadata log.
    """

    def ended() -> bool:  # by a race in Kafka 4.3.1's controller, at its start (MetadataLoader#installPublishers)
        return controller.pid is None

    def log_since_active() -> str:
        _, active, since = controller.output().rpartition("Becoming the active controller")
        return active and active + since

    def size() -> int:
        return sum(file.stat().st_size for file in metadata.glob("*.log"))

    eventually(lambda: ended() or log_since_active(), timeout=60)
    with contextlib.suppress(TimeoutError):  # a broker that was fenced when it died does not change the log
        eventually(lambda: ended() or "fenced=1," in log_since_active(), timeout=5)
    # The controller writes the record of the fencing with some delay, and a shutdown would drop it.
    before = size()
    with contextlib.suppress(TimeoutError):
        eventually(lambda: ended() or size() > before, timeout=2)
    time.sleep(0.3)
    return not ended()


FEATURES, IDS = "bootstrap.checkpoint", "meta.properties"
DECISIVE = ("process.roles", "unstable.feature.versions.enable")  # the settings on which the features depend


def is_formatted(data: Path) -> bool:
    return (data / IDS).exists()


def format_from_kept(properties: Mapping[str, str], cluster_id: str, data: Path) -> bool:
    """Write the files of a new node with these properties from the cache; False if the cache does not have them."""
    features = _kept(properties)
    if features is None:
        return False
    data.mkdir(parents=True, exist_ok=True)
    (data / FEATURES).write_bytes(features)
    ids = {"version": "1", "cluster.id": cluster_id, "node.id": properties["node.id"], "directory.id": new_id()}
    _write_whole(
        data / IDS, "".join(f"{name}={value}\n" for name, value in ids.items()).encode()
    )  # last: it makes the node formatted
    return True


def keep_format(properties: Mapping[str, str], data: Path) -> None:
    """Put what the tool has written for a node of these properties into the cache, if that can be written."""
    features = (data / FEATURES).read_bytes()
    with contextlib.suppress(OSError):
        _folder(properties).mkdir(parents=True, exist_ok=True)
        _write_whole(_folder(properties) / _sum(features), features)


def new_id() -> str:
    """Return a random id as Kafka writes them: 22 characters, the first of them not a hyphen."""
    while (made := urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")).startswith("-"):
        pass
    return made


def _kept(properties: Mapping[str, str]) -> bytes | None:
    with contextlib.suppress(OSError):
        for file in _folder(properties).iterdir():
            if _sum(features := file.read_bytes()) == file.name:
                return features
    return None


def _folder(properties: Mapping[str, str]) -> Path:
    described = json.dumps([KAFKA_VERSION, *(properties.get(name) for name in DECISIVE)])
    return lab_cache() / "formatted" / hashlib.sha256(described.encode()).hexdigest()[:16]


def _sum(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def _write_whole(file: Path, content: bytes) -> None:
    fresh = file.with_name(f".{file.name}.{os.getpid()}")
    fresh.write_bytes(content)
    fresh.replace(file)


LOG4J = Path(__file__).with_name("log4j2.properties")
TLS_ALERT = b"\x15\x03"  # the answer of a TLS server to a request without TLS
TEMPORARY = "tmp"  # Java's temporary directory, in the node's
CONFIG = "server.properties"
CONTROLLER_CONFIG = "controller.properties"
CLEAN_ENDS = (0, 128 + signal.SIGTERM, -signal.SIGTERM)
CONTROLLER_ATTEMPTS = 5
LONGEST_PREPARATION = 120  # seconds
RUNNING = "running"  # a file that only a clean end removes
# Only the JVM's quick compiler (C1): starts in half the time. A benchmark turns this off: a long run is slower with it.
QUICK_START = ("-XX:TieredStopAtLevel=1",)
QUICK_SPARK = (*QUICK_START, "-XX:+UseSerialGC")  # and a collector without threads; every broker has it anyway
# On a full disk a broker starts, answers, and dies at its first write.
LEAST_SPACE = 100 << 20


class BrokerError(RuntimeError):
    """A broker could not be started, or it cannot do what was requested."""


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
        # Relative to the directory, in which the process runs: Kafka splits a path at commas and reads it as Latin-1.
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
        # Check its own log as well: if another broker has just taken the port, that one answers.
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
        """Send a signal to the process that this object started. After a fatal one, call `wait_gone`."""
        if self._process is None:
            return
        if number == signal.SIGSTOP:
            self._process.pause()
        else:
            self._process.signal(number)
        if number == signal.SIGTERM:
            self._process.resume()  # a paused process does not react

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
        """Return the end of what the process logged, without routine lines, for an error message."""
        return self._process.last_lines(count) if self._process else "It was never started."

    @contextlib.contextmanager
    def _locked(self) -> Iterator[int]:
        """Lock the directory. The process that inherits the file descriptor keeps the lock as long as it lives.

        Kafka takes a lock of its own only after it has written to its metadata log.
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
        shutil.rmtree(self.directory / TEMPORARY, ignore_errors=True)  # a killed JVM has left files there
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
        """Tell whether the node was killed, and there is no other node to notice that."""
        return "," not in self._properties["controller.quorum.voters"] and (self.directory / RUNNING).exists()

    def _fence_the_dead(self) -> None:
        """Run only a controller, until it has noted that the broker is dead; the module's docstring says why."""
        _write_properties(self.directory / CONTROLLER_CONFIG, controller_properties(self._properties, self.quorum_port))
        for _ in range(CONTROLLER_ATTEMPTS):
            self._process = controller = self._start("kafka.Kafka", CONTROLLER_CONFIG)
            fenced = sees_it_fenced(controller, self.directory / "data" / "__cluster_metadata-0")
            controller.signal(signal.SIGTERM)
            controller.wait(30)
            if fenced:
                return
        raise BrokerError(
            f"the broker was killed; its controller must note that before the broker can start, but ended "
            f"{CONTROLLER_ATTEMPTS} times before it had; start the broker again.\n{self.last_lines()}"
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
    """Tell whether a Kafka broker on the port answers ApiVersions, or expects TLS."""
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
