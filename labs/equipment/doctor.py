"""Tell whether this machine can run the lab: what was found, and the cure for what is missing.

The last two checks send records through a real broker in a transaction, and read them again with Spark.
`pandas.DataFrame(checks())` makes a table of the checks.
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
from collections.abc import Callable, Iterable, Iterator
from importlib import metadata
from pathlib import Path

import psutil
import pyspark
from confluent_kafka import Consumer, Producer, TopicPartition
from jgo.constants import default_jgo_cache, default_maven_repo

from labs.equipment.broker import open_broker
from labs.equipment.foreign_packages import foreign_packages
from labs.equipment.jars import all_jars, connector_jars
from labs.equipment.java import REPEAT, find_java, innermost_cause, lab_cache
from labs.equipment.machine_checks import Check, CheckFailed, Step, follow
from labs.equipment.ports import free_ports
from labs.equipment.spark import SparkError, given_up_after, spark_session
from labs.equipment.topics import create_topic, remove_topics

OLDEST_PYTHON = (3, 11)
REQUIREMENTS = Path(__file__).parents[2] / "requirements.txt"
GIB = 1 << 30
ENOUGH_MEMORY, LEAST_MEMORY = 4 * GIB, 2 * GIB
LEAST_DISK = 2 * 10**9
# Of a control group: the files with its limit and its use, and the prefix of its statistics.
V1, V2 = ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_"), ("memory.max", "memory.current", "")
CACHE = ("inactive_file", "active_file")


def _python() -> str:
    found = ".".join(map(str, sys.version_info[:3]))
    if sys.version_info < OLDEST_PYTHON:
        raise CheckFailed(
            f"{found} is too old\nInstall Python 3.11 or newer, then run: make clean setup PYTHON=python3.12"
        )
    if not __debug__:
        raise CheckFailed(f"{found} skips every `assert`, which kafka-python needs\nUnset PYTHONOPTIMIZE")
    return found


def _user() -> str:
    if os.geteuid():
        return "not root"
    return "root: the lab runs, but JupyterLab starts only with: make lab AS_ROOT=--allow-root"


def _packages() -> str:
    if foreign := foreign_packages():
        raise CheckFailed(foreign)
    pins = re.findall(r"^([\w.-]+)(?:\[[\w,-]+\])?==([^\s;]+)", REQUIREMENTS.read_text(), re.MULTILINE)
    wrong = [f"{name} {have} instead of {pin}" for name, pin in pins if (have := _installed(name)) != pin]
    if wrong:
        raise CheckFailed(f"{'; '.join(wrong)}\nRun: make setup, and use .venv/bin/python")
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
    return f"{len(all_jars())}, each with its recorded sum"


def _connector() -> str:
    [(scala, connector)] = _versions(r"spark-sql-kafka-0-10_([\d.]+)-(.+)\.jar", connector_jars())
    [(spark_scala, spark)] = _versions(
        r"spark-core_([\d.]+)-(.+)\.jar", Path(pyspark.__file__).with_name("jars").iterdir()
    )
    if (scala, connector) != (spark_scala, spark):
        raise CheckFailed(f"{connector} for Scala {scala}, but Spark is {spark} for Scala {spark_scala}")
    return f"{connector}, the version of Spark; both for Scala {scala}"


def _versions(pattern: str, jars: Iterable[Path]) -> list[tuple[str, str]]:
    return [(match[1], match[2]) for jar in jars if (match := re.fullmatch(pattern, jar.name))]


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
                raise CheckFailed("a connection to 127.0.0.1 was accepted and then lost")
    return "127.0.0.1 can be listened on and reached"


def _memory() -> str:
    available = _available_memory()
    found = f"{available / GIB:.1f} GiB available"
    if available < LEAST_MEMORY:
        raise CheckFailed(found)
    return found if available >= ENOUGH_MEMORY else f"{found}: it will do, and {ENOUGH_MEMORY / GIB:.0f} are better"


def _available_memory(groups: Path = Path("/sys/fs/cgroup"), own: Path = Path("/proc/self/cgroup")) -> int:
    """Return the bytes that are free or can be freed, on the machine and in each control group of this process.

    A group counts the cache of its files as used, though the kernel frees that when memory is needed.
    """
    available = psutil.virtual_memory().available
    with contextlib.suppress(OSError):
        for line in own.read_text().splitlines():
            _, controllers, path = line.split(":", 2)
            if controllers and "memory" not in controllers.split(","):
                continue
            top = groups / "memory" if controllers else groups  # version 1, or 2
            inner = top / path.lstrip("/")
            # A container may see only its own group, which then is `top` itself.
            for group in (each for each in (inner, *inner.parents) if each.is_relative_to(top)):
                available = min(available, _left_in(group, V1 if controllers else V2))
    return available


def _left_in(group: Path, names: tuple[str, str, str]) -> int:
    limit, used, prefix = names
    try:
        lines = (group / "memory.stat").read_text().splitlines()
        cached = sum(int(line.split()[1]) for line in lines if line.split()[0] in {f"{prefix}{name}" for name in CACHE})
        return int((group / limit).read_text()) - (int((group / used).read_text()) - cached)
    except (OSError, ValueError, IndexError):  # no such group, or no limit
        return sys.maxsize


def _disk() -> str:
    places = [Path(tempfile.gettempdir()), default_jgo_cache(), default_maven_repo(), lab_cache()]
    free = {place: shutil.disk_usage(_existing(place)).free for place in places}
    short = [f"{left / 1e9:.1f} GB free in {place}" for place, left in free.items() if left < LEAST_DISK]
    if short:
        raise CheckFailed("; ".join(short))
    return f"{min(free.values()) / 1e9:.0f} GB free for data and caches"


def _existing(place: Path) -> Path:
    return next(parent for parent in (place, *place.absolute().parents) if parent.exists())


MACHINE = [
    Step("Python", _python, ""),  # each error has a cure of its own
    Step("User", _user, ""),
    Step("Packages", _packages, ""),
    Step("Java", _java, "Run: make setup"),
    Step("Jars", _jars, ""),  # each error has a cure of its own
    Step("Connector", _connector, "Run: make setup", ("Jars",)),
    Step("Ports", _ports, "Allow Python and Java to connect to 127.0.0.1 in the firewall or VPN"),
    Step("Memory", _memory, f"Close other programs, or give the container {ENOUGH_MEMORY / GIB:.0f} GiB"),
    Step("Disk", _disk, "Free 2 GB there, or name another disk (TMPDIR for data, JGO_CACHE_DIR and M2_REPO for jars)"),
]


RECORDS = 1000
LONGEST = 120  # seconds until Spark has read them


def bench(stack: contextlib.ExitStack) -> list[Step]:
    """Return the steps that use a broker and Spark; `stack` closes what they opened."""
    topic = f"labs-doctor-{uuid.uuid4().hex[:8]}"
    sent = {b"%d" % n for n in range(RECORDS)}
    servers = ""

    def broker() -> str:
        nonlocal servers
        before = time.monotonic()
        kafka = open_broker()
        stack.enter_context(kafka)
        started = time.monotonic()
        servers = kafka.bootstrap_servers
        create_topic(servers, topic, partitions=1, replication=kafka.replication)
        if kafka.external:
            stack.callback(remove_topics, servers, topic)
        produce(servers, topic, sent)
        _expect(sent, _consume(servers, topic, len(sent)))
        took = time.monotonic() - started
        start = "that of KAFKA_BOOTSTRAP_SERVERS" if kafka.external else f"started in {started - before:.1f} s"
        return f"{start}; a transaction of {RECORDS:,} records written and read back in {took:.1f} s"

    def spark() -> str:
        before = time.monotonic()
        try:
            session = spark_session()
            started = time.monotonic()
            options = {
                "kafka.bootstrap.servers": servers,
                "subscribe": topic,
                "kafka.isolation.level": "read_committed",
            }
            with given_up_after(LONGEST):
                rows = session.read.format("kafka").options(**options).load().select("value").collect()
        except SparkError as error:
            raise CheckFailed(f"{error.what}\n{error.what_to_do}") from error
        except Exception as error:
            raise CheckFailed(f"{innermost_cause(str(error)) or repr(error)}\n{REPEAT}") from error
        _expect(sent, [bytes(row.value) for row in rows])
        took = time.monotonic() - started
        return f"{session.version}, session in {started - before:.1f} s; the same records read in {took:.1f} s"

    return [
        Step("Broker", broker, _unset("KAFKA_BOOTSTRAP_SERVERS", "a broker of its own"), ("Java", "Jars", "Ports")),
        # Without SPARK_MASTER no cure is given here: each error has a cure of its own.
        Step("Spark", spark, _unset("SPARK_MASTER", "this machine", ""), ("Connector", "Broker")),
    ]


def _unset(variable: str, otherwise: str, cure: str = REPEAT) -> str:
    if variable in os.environ:
        return f"Check {variable}, or unset it: then the lab uses {otherwise}"
    return cure


def produce(servers: str, topic: str, values: set[bytes]) -> None:
    """Write the values to the topic in one transaction. Raises KafkaException."""
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
    consumer = Consumer(settings)
    values: list[bytes] = []
    deadline = time.monotonic() + 30
    with contextlib.closing(consumer):
        consumer.assign([TopicPartition(topic, 0, 0)])
        while len(values) < count and time.monotonic() < deadline:
            values += [message.value() or b"" for message in consumer.consume(count, 0.2) if not message.error()]
    return values


def _expect(sent: set[bytes], read: list[bytes]) -> None:
    if len(read) != len(sent) or set(read) != sent:
        found = f"{len(sent):,} records were written and {len(set(read) & sent):,} of them read, in {len(read):,}"
        raise CheckFailed(f"{found}\n{REPEAT}")


def checks(starting: Callable[[str], object] = lambda name: None) -> Iterator[Check]:
    """Check one thing after the other; `starting` is called with the name of each before it is checked."""
    with contextlib.ExitStack() as stack:
        yield from follow([*MACHINE, *bench(stack)], starting)
