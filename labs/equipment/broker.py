"""A real Kafka for the lab: one KRaft process on loopback, or a cluster of them, started and stopped by Python.

The processes never outlive this one, however it ends. Data survives `kill`, `stop` and `restart` of a broker
and is deleted by `close` (or at the end of a `with` block) unless a directory was given.

`run_kafka_tool` runs Kafka's own command-line tools with the lab's Java and the broker's jars.
"""

from __future__ import annotations

import atexit
import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from labs.equipment.child_process import for_program
from labs.equipment.jars import broker_jars
from labs.equipment.java import find_java
from labs.equipment.node import LOG4J, QUICK_START, BrokerError, Node, new_id
from labs.equipment.ports import PortTaken, free_ports


def run_kafka_tool(
    main_class: str, *arguments: str, cwd: Path | None = None, timeout: float | None = None
) -> subprocess.CompletedProcess[str]:
    """Run one of Kafka's tools by its main class, and return its exit code and what it printed.

    Raises subprocess.TimeoutExpired after `timeout` seconds.
    """
    command = [
        find_java().executable,
        *("-XX:+UseSerialGC", *QUICK_START, f"-Dlog4j2.configurationFile={LOG4J.as_uri()}"),
        *("-cp", os.pathsep.join(map(str, broker_jars())), main_class, *arguments),
    ]
    ran = subprocess.run(command, cwd=cwd, env=for_program(), capture_output=True, timeout=timeout)
    # Not as a text file: a carriage return in a record's value would become the end of a line.
    said, complained = ran.stdout.decode(errors="replace"), ran.stderr.decode(errors="replace")
    return subprocess.CompletedProcess(command, ran.returncode, said, complained)


SETTINGS = {
    "auto.create.topics.enable": "false",
    "group.initial.rebalance.delay.ms": "0",
    "offsets.topic.num.partitions": "3",
    "transaction.state.log.num.partitions": "3",
    "share.coordinator.state.topic.num.partitions": "1",
    # A transaction that outlives its transaction.timeout.ms is aborted within a second instead of ten.
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "1000",
}
# A node without replicas must not be fenced, however long it is frozen: when it woke up, its partitions would have no
# leader for a moment, and Kafka leaves transactions open in such partitions (docs/sink.md).
ALONE = {"broker.session.timeout.ms": "3600000"}


def nothing() -> None:
    """Do nothing: the default of `meanwhile`."""


class Broker:
    """A Kafka of `nodes` processes on 127.0.0.1.

    `directory` keeps the data after `close` (default: a temporary one). `port` fixes the first node's port,
    `settings` adds broker settings, and `advertised_port` makes the first node tell its clients to connect to
    that port instead, for example a proxy's. Replication is as high as the number of nodes allows, up to 3.
    Ports that were not given may change until it has started.
    """

    external = False

    def __init__(
        self,
        nodes: int = 1,
        directory: str | Path | None = None,
        port: int | None = None,
        settings: dict[str, str] | None = None,
        advertised_port: int | None = None,
        jvm_options: tuple[str, ...] = QUICK_START,
    ):
        require_asserts()
        if nodes < 1:
            raise BrokerError(f"a broker has one node or more, not {nodes}")
        self.replication = min(nodes, 3)
        self._temporary = None if directory else Path(tempfile.mkdtemp(prefix="labs-kafka-"))
        self.directory = self._temporary or Path(directory or "").resolve()
        self._port, self._settings, self._advertised_port = port, settings or {}, advertised_port
        self._jvm_options, self._cluster_id = jvm_options, _known_cluster_id(self.directory)
        self._ports_are_final = port is not None
        self.nodes = self._nodes(nodes)
        atexit.register(self.close)

    def _nodes(self, count: int) -> list[Node]:
        ports = free_ports(2 * count)
        client_ports, quorum_ports = ports[:count], ports[count:]
        client_ports[0] = self._port or client_ports[0]
        voters = ",".join(f"{n}@127.0.0.1:{quorum_ports[n]}" for n in range(count))
        return [
            Node(
                node_id=n,
                directory=self.directory / f"node-{n}",
                port=client_ports[n],
                quorum_port=quorum_ports[n],
                properties=self._properties(n, client_ports[n], quorum_ports[n], voters),
                cluster_id=self._cluster_id,
                jvm_options=self._jvm_options,
                temporary=self._temporary,
            )
            for n in range(count)
        ]

    def _properties(self, n: int, port: int, quorum: int, voters: str) -> dict[str, str]:
        advertised = (self._advertised_port if n == 0 else None) or port
        in_sync = str(max(1, self.replication - 1))
        return {
            "process.roles": "broker,controller",
            "node.id": str(n),
            "controller.quorum.voters": voters,
            "listeners": f"CLIENT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{quorum}",
            "advertised.listeners": f"CLIENT://127.0.0.1:{advertised}",
            "listener.security.protocol.map": "CLIENT:PLAINTEXT,CONTROLLER:PLAINTEXT",
            "inter.broker.listener.name": "CLIENT",
            "controller.listener.names": "CONTROLLER",
            "default.replication.factor": str(self.replication),
            "min.insync.replicas": in_sync,
            "offsets.topic.replication.factor": str(self.replication),
            "transaction.state.log.replication.factor": str(self.replication),
            "transaction.state.log.min.isr": in_sync,
            "share.coordinator.state.topic.replication.factor": str(self.replication),
            "share.coordinator.state.topic.min.isr": in_sync,
            **SETTINGS,
            **(ALONE if self.replication == 1 else {}),
            **self._settings,
        }

    @property
    def bootstrap_servers(self) -> str:
        """Addresses as Kafka clients take them: host:port, comma-separated."""
        return ",".join(f"127.0.0.1:{node.port}" for node in self.nodes)

    @property
    def running(self) -> bool:
        return all(node.pid for node in self.nodes)

    def start(self, node: int | None = None, meanwhile: Callable[[], object] = nothing) -> Broker:
        """Start one node, or every one that does not run, and wait until it answers.

        `meanwhile` is called before the wait, for example to start another JVM. Raises BrokerError, and what
        `meanwhile` raises.
        """
        for attempt in range(3):
            try:
                for each in self._which(node):
                    each.launch()
                meanwhile()
                meanwhile = nothing  # call it only once, even if the ports turn out to be taken
                for each in self._which(node):
                    each.wait_ready()
                break
            except PortTaken as error:
                self.kill(node)
                if self._ports_are_final or attempt == 2:
                    raise BrokerError(str(error)) from error
                self.nodes = self._nodes(len(self.nodes))  # another program took a port; no client knows ours yet
            except BaseException:
                self.kill(node)
                raise
        self._ports_are_final = True
        return self

    def stop(self, node: int | None = None) -> None:
        """Shut down cleanly: one node, or all."""
        self._end(signal.SIGTERM, node)

    def kill(self, node: int | None = None) -> None:
        """SIGKILL one node, or all: the process cannot clean up."""
        self._end(signal.SIGKILL, node)

    def pause(self, node: int | None = None) -> None:
        """SIGSTOP one node, or all: it keeps its connections and does not answer."""
        self._signal(signal.SIGSTOP, node)

    def resume(self, node: int | None = None) -> None:
        """SIGCONT one node, or all."""
        self._signal(signal.SIGCONT, node)

    def restart(self, node: int | None = None) -> Broker:
        """Stop cleanly one node, or all, and start again with the same data and port."""
        self.stop(node)
        return self.start(node)

    def close(self) -> None:
        """Stop all nodes, and delete the data unless a directory was given."""
        atexit.unregister(self.close)
        if self._temporary:
            self.kill()
            shutil.rmtree(self._temporary, ignore_errors=True)
        else:
            self.stop()

    def _which(self, node: int | None) -> list[Node]:
        return self.nodes if node is None else [self.nodes[node]]

    def _signal(self, number: int, node: int | None) -> None:
        for each in self._which(node):
            each.signal(number)

    def _end(self, number: int, node: int | None) -> None:
        self._signal(number, node)  # signal all before the first wait: the last would wait for dead controllers
        for each in self._which(node):
            each.wait_gone(timeout=30 if len(self.nodes) == 1 else 10)

    def __enter__(self) -> Broker:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.close()


class ExternalBroker:
    """A Kafka that the lab did not start: it can be used, but not stopped or killed."""

    external, running, replication = True, True, -1  # -1: the replication that this Kafka has as its default

    def __init__(self, bootstrap_servers: str):
        self.bootstrap_servers = bootstrap_servers

    def start(self, node: int | None = None, meanwhile: Callable[[], object] = nothing) -> ExternalBroker:
        meanwhile()
        return self

    def close(self) -> None:
        """Leave it as it is."""

    def _refuse(self, *_: object) -> None:
        raise BrokerError(
            f"KAFKA_BOOTSTRAP_SERVERS names a Kafka that the lab did not start ({self.bootstrap_servers}), and the lab "
            "only signals what it started; unset the variable to get a broker that may be killed"
        )

    stop = kill = pause = resume = restart = _refuse

    def __enter__(self) -> ExternalBroker:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


AnyBroker = Broker | ExternalBroker


def open_broker(meanwhile: Callable[[], object] = nothing, **options: Any) -> AnyBroker:
    """Start the lab's Kafka (options as for `Broker`), or use the one that KAFKA_BOOTSTRAP_SERVERS names.

    `meanwhile` is called while it starts. Raises BrokerError, and what `meanwhile` raises.
    """
    require_asserts()
    named = os.environ.get("KAFKA_BOOTSTRAP_SERVERS")
    return (ExternalBroker(named) if named else Broker(**options)).start(meanwhile=meanwhile)


def require_asserts() -> None:
    """Raise BrokerError if Python skips each `assert`: kafka-python reads a part of Kafka's answers in one."""
    if not __debug__:
        raise BrokerError(
            "this Python skips every `assert`, and kafka-python cannot read Kafka's answers without them; unset "
            "PYTHONOPTIMIZE, or run Python without -O"
        )


def _known_cluster_id(directory: Path) -> str:
    for meta in directory.glob("node-*/data/meta.properties"):
        for line in meta.read_text().splitlines():
            if line.startswith("cluster.id="):
                return line.partition("=")[2]
    return new_id()
