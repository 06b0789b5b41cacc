"""The jars of the Kafka broker, of other engines, and what Spark needs besides its own: fetched once, verified.

jgo fetches the jars. On every start, the lab uses them only if none is missing and every jar has the SHA-256 sum that
`jars.sha256` records: a corrupted or swapped jar is refused by name. Cached jars need no network. If several processes
need jars that are not here yet, one fetches them and the others wait.
"""

from __future__ import annotations

import functools
import hashlib
import os
from collections.abc import Set
from pathlib import Path

import pyspark

from labs.equipment.child_process import cache, home
from labs.equipment.waiting import alone_in

KAFKA_VERSION = "4.3.1"
KAFKA = "+".join(
    [
        f"org.apache.kafka:kafka_2.13:{KAFKA_VERSION}",
        f"org.apache.kafka:kafka-tools:{KAFKA_VERSION}",
        "org.apache.logging.log4j:log4j-slf4j-impl:2.25.4!",  # "!": ignore its dependency management
    ]
)
# The connector must have Spark's own version. Newer versions of its token provider are missing from some mirrors;
# 4.0.0 works with every 4.x.
SPARK = "+".join(
    [
        f"org.apache.spark:spark-sql-kafka-0-10_2.13:{pyspark.__version__}",
        "org.apache.spark:spark-token-provider-kafka-0-10_2.13:4.0.0",
        "com.globalmentor:hadoop-bare-naked-local-fs:0.1.0",
    ]
)
# The connector's release for the version of Flink that labs/engines/locks names. It contains all that it needs.
FLINK = "org.apache.flink:flink-sql-connector-kafka:5.0.0-2.2"
STREAMS = f"org.apache.kafka:kafka-streams:{KAFKA_VERSION}+org.slf4j:slf4j-simple:1.7.36"
LOCAL_FILES = "hadoop-bare-naked-local-fs"
SUMS = Path(__file__).with_name("jars.sha256")


class JarRefused(RuntimeError):
    """A jar is missing, unknown, or not the one whose sum is committed."""


class JarsNotFetched(JarRefused):
    """The jars are not here, and could not be fetched, most likely because there is no network."""


@functools.cache
def broker_jars() -> tuple[Path, ...]:
    """Return the broker's class path, fetched if need be and verified. Raises JarRefused."""
    return _verified(KAFKA)


def connector_jars() -> tuple[Path, ...]:
    """Return the connector's jars without those that pyspark ships itself. Raises JarRefused."""
    shipped = {_artifact(jar.name) for jar in shipped_jars()}
    return tuple(jar for jar in _spark_jars() if _artifact(jar.name) not in shipped | {LOCAL_FILES})


def local_files_jar() -> Path:
    """Return the jar of `com.globalmentor.apache.hadoop.fs.BareLocalFileSystem`. Raises JarRefused."""
    [found] = (jar for jar in _spark_jars() if _artifact(jar.name) == LOCAL_FILES)
    return found


@functools.cache
def flink_connector_jars() -> tuple[Path, ...]:
    """Return Flink's connector to Kafka, for that engine alone, fetched if need be and verified. Raises JarRefused."""
    return _verified(FLINK)


@functools.cache
def streams_jars() -> tuple[Path, ...]:
    """Return the jars of Kafka Streams, for that engine alone, fetched if need be and verified. Raises JarRefused."""
    return _verified(STREAMS)


def all_jars() -> tuple[Path, ...]:
    """Return the jars of the broker and those that Spark needs, fetched if need be and verified. Raises JarRefused."""
    return (*broker_jars(), *connector_jars(), local_files_jar())


def shipped_jars() -> list[Path]:
    """Return the jars that pyspark ships."""
    return sorted(Path(pyspark.__file__).with_name("jars").glob("*.jar"))


def kept_jars() -> list[Path]:
    """Return the jars of the broker and of Spark's connector that are here, unverified; none is fetched."""
    return [jar for endpoint in (KAFKA, SPARK) for jar in _kept(endpoint, read_sums(endpoint).keys())]


@functools.cache
def _spark_jars() -> tuple[Path, ...]:
    return _verified(SPARK)


def _artifact(jar_name: str) -> str:
    return jar_name.rsplit("-", 1)[0]


def _verified(endpoint: str) -> tuple[Path, ...]:
    known = read_sums(endpoint)
    jars = _kept(endpoint, known.keys()) or _fetch_alone(endpoint, known.keys())
    if missing := known.keys() - {jar.name for jar in jars}:
        raise JarRefused(f"{', '.join(sorted(missing))} did not come with {endpoint}.\nRun: python -m labs setup")
    for jar in jars:
        if jar.name not in known:
            raise JarRefused(
                f"{jar.name} has no sum in {SUMS.name}: it belongs to another version than requirements.txt pins.\n"
                "Run: make setup"
            )
        found = sha256(jar)
        if found != known[jar.name]:
            raise JarRefused(
                f"{jar.name} is not the jar that the lab was tested with and is refused.\n"
                f"  expected sha256 {known[jar.name]}\n  found    sha256 {found}\n"
                f"Delete {jar.resolve()} and its copy below ~/.m2/repository, then run: python -m labs setup"
            )
    return tuple(jars)


def _fetch_alone(endpoint: str, names: Set[str]) -> list[Path]:
    """Fetch, unless another process has done so meanwhile: if two jgos run at once, one fails at the other's links."""
    try:
        with alone_in(_cache()):
            jars = _kept(endpoint, names) or _fetch(endpoint)
            if names - {jar.name for jar in jars}:  # jgo takes an interrupted fetch for a complete one
                jars = _fetch(endpoint, anew=True)
            return jars
    except OSError as error:
        raise JarsNotFetched(f"the jars cannot be kept where jgo keeps its own: {error}") from error


def _fetch(endpoint: str, anew: bool = False) -> list[Path]:
    os.environ.setdefault("JGO_CACHE_DIR", str(_cache()))
    os.environ.setdefault("M2_REPO", str(home() / ".m2" / "repository"))
    import jgo  # imported only here, because it takes as long as the rest of a start

    try:
        return sorted(jgo.build(endpoint, update=anew).all_jars)
    except Exception as error:
        raise JarsNotFetched(
            f"the jars of {endpoint} could not be fetched: {error}\n"
            "They are needed once; connect to the network and run: python -m labs setup"
        ) from error


def _kept(endpoint: str, names: Set[str]) -> list[Path]:
    """Return the jars that jgo keeps of this endpoint, if all of these are there, without calling jgo.

    If an endpoint's only jar is a Java module, jgo does not find it, and would link it again while it is in use.
    """
    group, artifact, _ = endpoint.split(":", maxsplit=2)
    for folder in sorted(_cache().joinpath("envs", *group.split("."), artifact).glob("*")):
        jars = sorted(folder.glob("*/*.jar"))
        if {jar.name for jar in jars} == names:
            return jars
    return []


def _cache() -> Path:
    """Return jgo's cache directory, as `jgo.constants.default_jgo_cache` does, without importing all of jgo.

    If it cannot be created, return another one, which JGO_CACHE_DIR tells jgo.
    """
    return Path(os.environ.get("JGO_CACHE_DIR") or cache("jgo"))


def sha256(jar: Path) -> str:
    with jar.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def read_sums(endpoint: str) -> dict[str, str]:
    """Return the committed sums of an endpoint's jars: jar name -> SHA-256 in hex. Raises JarRefused."""
    sums: dict[str, dict[str, str]] = {}
    for line in SUMS.read_text().splitlines():
        if line.startswith("# "):
            section = sums[line[2:]] = {}
        else:
            digest, name = line.split()
            section[name] = digest
    if endpoint not in sums:
        raise JarRefused(
            f"{SUMS.name} has no sums for {endpoint}: is the pyspark in {Path(pyspark.__file__).parent} another than "
            "requirements.txt pins?\n"
            "Run: make setup"
        )
    return sums[endpoint]


def write_sums() -> None:
    """Record the sums of the jars as they are fetched now: for maintainers who raise a version."""
    sections = []
    for endpoint in (KAFKA, SPARK, FLINK, STREAMS):
        sections += [f"# {endpoint}", *(f"{sha256(jar)}  {jar.name}" for jar in _fetch(endpoint))]
    SUMS.write_text("\n".join(sections) + "\n")
