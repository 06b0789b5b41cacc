"""Tell whether this machine can run the lab: what was found, and the cure for what is missing.

The last two checks use the real thing: a transaction through a broker, and its records again through Spark.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import socket
import sys
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

import psutil
import pyspark
from confluent_kafka import Consumer, Producer, TopicPartition
from jgo.constants import default_jgo_cache, default_maven_repo

from labs.equipment.broker import open_broker
from labs.equipment.jars import broker_jars, connector_jars
from labs.equipment.java import find_java, lab_cache
from labs.equipment.ports import free_ports
from labs.equipment.spark import spark_session
from labs.equipment.topics import admin, create_topic

OLDEST_PYTHON = (3, 11)
REQUIREMENTS = Path(__file__).parents[2] / "requirements.txt"
GIB = 1 << 30
ENOUGH_MEMORY, LEAST_MEMORY = 4 * GIB, 2 * GIB
LEAST_DISK = 2 * 10**9
RECORDS = 1000


@dataclass(frozen=True)
class Check:
    """What one check found. `passed` is None if it was not tried; `cure` tells what to do about a failure."""

    name: str
    passed: bool | None
    found: str
    cure: str = ""


class Unfit(RuntimeError):
    """The machine lacks something; the message says what was found."""


@dataclass(frozen=True)
class Step:
    """How to check one thing: `look` returns what it found or raises; `needs` names the steps it builds on."""

    name: str
    look: Callable[[], str]
    cure: str
    needs: tuple[str, ...] = ()


def checks(starting: Callable[[str], object] = lambda name: None) -> Iterator[Check]:
    """Check one thing after the other; `starting` is told the name of each before it is looked at."""
    with contextlib.ExitStack() as stack:
        yield from follow([*MACHINE, *_bench(stack)], starting)


def follow(steps: list[Step], starting: Callable[[str], object] = lambda name: None) -> Iterator[Check]:
    """Take the steps in order, leaving out those that build on one that failed."""
    passed: set[str] = set()
    for step in steps:
        lacking = [need for need in step.needs if need not in passed]
        if lacking:
            yield Check(step.name, None, f"not tried, because it needs: {', '.join(lacking)}")
            continue
        starting(step.name)
        try:
            check = Check(step.name, True, step.look())
            passed.add(step.name)
        except Exception as error:
            found, _, more = (str(error) or repr(error)).partition("\n")
            check = Check(step.name, False, found, f"{more}\n{step.cure}".strip())
        yield check


def _python() -> str:
    found = ".".join(map(str, sys.version_info[:3]))
    if sys.version_info < OLDEST_PYTHON:
        raise Unfit(f"{found} is too old")
    return found


def _packages() -> str:
    pins = re.findall(r"^([\w.-]+)==([^\s;]+)", REQUIREMENTS.read_text(), re.MULTILINE)
    wrong = [f"{name} {have} instead of {pin}" for name, pin in pins if (have := _installed(name)) != pin]
    if wrong:
        raise Unfit("; ".join(wrong))
    return f"{len(pins)}, as pinned in {REQUIREMENTS.name}"


def _installed(package: str) -> str:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return "missing"


def _java() -> str:
    java = find_java()
    return f"{java.version} ({java.origin})"


def _jars() -> str:
    return f"{len(broker_jars()) + len(connector_jars())}, each with its recorded sum"


def _connector() -> str:
    [(scala, connector)] = _versions(r"spark-sql-kafka-0-10_([\d.]+)-(.+)\.jar", connector_jars())
    [(spark_scala, spark)] = _versions(
        r"spark-core_([\d.]+)-(.+)\.jar", Path(pyspark.__file__).with_name("jars").iterdir()
    )
    if (scala, connector) != (spark_scala, spark):
        raise Unfit(f"{connector} for Scala {scala}, but Spark is {spark} for Scala {spark_scala}")
    return f"{connector}, the version of Spark; both for Scala {scala}"


def _versions(pattern: str, jars) -> list[tuple[str, str]]:
    return [match.groups() for jar in jars if (match := re.fullmatch(pattern, jar.name))]


def _ports() -> str:
    [port] = free_ports(1)
    with (
        socket.create_server(("127.0.0.1", port)) as server,
        socket.create_connection(("127.0.0.1", port), timeout=5) as client,
    ):
        server.settimeout(5)
        accepted, _ = server.accept()
        with accepted:
            accepted.settimeout(5)
            client.sendall(b"?")
            if accepted.recv(1) != b"?":
                raise Unfit("a connection to 127.0.0.1 was accepted and then lost")
    return "127.0.0.1 can be listened on and reached"


def _memory() -> str:
    available = psutil.virtual_memory().available
    with contextlib.suppress(OSError, ValueError):  # a container may have less than its machine
        group = Path("/sys/fs/cgroup")
        limit, used = (int((group / name).read_text()) for name in ("memory.max", "memory.current"))
        available = min(available, limit - used)
    found = f"{available / GIB:.1f} GiB available"
    if available < LEAST_MEMORY:
        raise Unfit(found)
    return found if available >= ENOUGH_MEMORY else f"{found}: it will do, and {ENOUGH_MEMORY / GIB:.0f} are better"


def _disk() -> str:
    places = [Path(tempfile.gettempdir()), default_jgo_cache(), default_maven_repo(), lab_cache()]
    free = {place: shutil.disk_usage(_existing(place)).free for place in places}
    short = [f"{left / 1e9:.1f} GB free in {place}" for place, left in free.items() if left < LEAST_DISK]
    if short:
        raise Unfit("; ".join(short))
    return f"{min(free.values()) / 1e9:.0f} GB free for data and caches"


def _existing(place: Path) -> Path:
    return next(parent for parent in (place, *place.absolute().parents) if parent.exists())


MACHINE = [
    Step("Python", _python, "Install Python 3.11 or newer, then run: make clean setup PYTHON=python3.12"),
    Step("Packages", _packages, "Run: make setup, and use .venv/bin/python"),
    Step("Java", _java, "Run: make setup"),
    Step("Jars", _jars, ""),  # what can be wrong with them has a cure of its own each
    Step("Connector", _connector, "Run: make setup", ("Jars",)),
    Step("Ports", _ports, "Allow Python and Java to connect to 127.0.0.1 in the firewall or VPN"),
    Step("Memory", _memory, f"Close other programs, or give the container {ENOUGH_MEMORY / GIB:.0f} GiB"),
    Step("Disk", _disk, "Free 2 GB there, or name another disk (TMPDIR for data, JGO_CACHE_DIR and M2_REPO for jars)"),
]


def _bench(stack: contextlib.ExitStack) -> list[Step]:
    """Return the steps that use the bench; `stack` closes what they opened."""
    topic = f"labs-doctor-{uuid.uuid4().hex[:8]}"
    sent = {b"%d" % n for n in range(RECORDS)}
    servers = ""

    def broker() -> str:
        nonlocal servers
        before = time.monotonic()
        kafka = stack.enter_context(open_broker())
        started = time.monotonic()
        servers = kafka.bootstrap_servers
        create_topic(servers, topic, partitions=1, replication=kafka.replication)
        if kafka.external:
            stack.callback(_delete_topic, servers, topic)
        _produce(servers, topic, sent)
        _expect(sent, _consume(servers, topic, len(sent)))
        took = time.monotonic() - started
        start = "yours, not stopped here" if kafka.external else f"started in {started - before:.1f} s"
        return f"{start}; a transaction of {RECORDS:,} records written and read back in {took:.1f} s"

    def spark() -> str:
        before = time.monotonic()
        session = spark_session()
        started = time.monotonic()
        options = {"kafka.bootstrap.servers": servers, "subscribe": topic, "kafka.isolation.level": "read_committed"}
        rows = session.read.format("kafka").options(**options).load().select("value").collect()
        _expect(sent, [bytes(row.value) for row in rows])
        took = time.monotonic() - started
        return f"{session.version}, session in {started - before:.1f} s; the same records read in {took:.1f} s"

    return [
        Step("Broker", broker, _unset("KAFKA_BOOTSTRAP_SERVERS", "a broker of its own"), ("Java", "Jars", "Ports")),
        Step("Spark", spark, _unset("SPARK_MASTER", "this machine"), ("Connector", "Broker")),
    ]


def _unset(variable: str, otherwise: str) -> str:
    if variable in os.environ:
        return f"Check {variable}, or unset it: then the lab uses {otherwise}"
    return "Close other programs and try again; if it fails again, report these lines"


def _produce(servers: str, topic: str, values: set[bytes]) -> None:
    producer = Producer({"bootstrap.servers": servers, "transactional.id": topic, "log_level": 0})
    producer.init_transactions(30)
    producer.begin_transaction()
    for value in values:
        producer.produce(topic, value)
    producer.commit_transaction(30)


def _consume(servers: str, topic: str, count: int) -> list[bytes]:
    settings = {
        "bootstrap.servers": servers,
        "group.id": topic,
        "isolation.level": "read_committed",
        "enable.auto.commit": False,
        "log_level": 0,
    }
    consumer, values = Consumer(settings), []
    deadline = time.monotonic() + 30
    with contextlib.closing(consumer):
        consumer.assign([TopicPartition(topic, 0, 0)])
        while len(values) < count and time.monotonic() < deadline:
            values += [message.value() for message in consumer.consume(count, 0.2) if not message.error()]
    return values


def _expect(sent: set[bytes], read: list[bytes]) -> None:
    if len(read) != len(sent) or set(read) != sent:
        raise Unfit(f"{len(sent):,} records were written and {len(set(read) & sent):,} of them read, in {len(read):,}")


def _delete_topic(servers: str, topic: str) -> None:
    with admin(servers) as client:
        client.delete_topics([topic])
