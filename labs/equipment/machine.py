"""The checks of what the lab needs of a machine: each tells what was found, and the cure for what is missing."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import socket
import sys
import tempfile
from collections.abc import Iterable
from importlib import metadata
from pathlib import Path

import psutil
import pyspark
from jgo.constants import default_jgo_cache, default_maven_repo

from labs.equipment.check import CheckFailed, Step
from labs.equipment.foreign_packages import foreign_packages
from labs.equipment.jars import all_jars, connector_jars
from labs.equipment.java import find_java, lab_cache
from labs.equipment.ports import free_ports

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
            # A container may see only its own group, and that as the top.
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
