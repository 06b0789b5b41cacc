"""Class-data archives (CDS): a file of a JVM's classes, which the next JVM maps instead of reading and checking jars.

A broker and a Spark driver each load some ten thousand classes at every start. `make_archives` records these once, in a
training run, and a start then takes a third less of the processor's time. Limitations: a JVM ignores an archive that
was made with another Java or other jars.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyspark

from labs.equipment.child_process import for_program, for_python
from labs.equipment.jars import kept_jars, shipped_jars
from labs.equipment.java import find_java, lab_cache

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

ARCHIVES = ("broker", "spark")
MADE_FOR = "made-for"  # a file that names the Java and the Spark of the archives
BASE = "base.jsa"  # Java's own classes: every other archive needs it, and a trimmed Java comes without
TRAINING = "LABS_TRAIN_ARCHIVES"  # names a directory: JVMs record the classes that they load, and write them there
LONGEST = 600  # seconds that the training may take on a slow machine
TOPIC, RESULTS = "training", "results"  # topics of the training
QUIET = ("-Xlog:cds=off", "-Xlog:cds+dynamic=off")  # no warning if an archive was made with other jars


def archive_options(name: str) -> tuple[str, ...]:
    """Return the JVM options that use the archive `name`, or record it in a training; none if there is no archive."""
    kept = archive_directory()
    below = [str(kept / BASE)] if (kept / BASE).exists() else []
    if directory := os.environ.get(TRAINING):
        return (
            *(f"-XX:SharedArchiveFile={file}" for file in below),
            f"-XX:ArchiveClassesAtExit={directory}/{name}.jsa",
            *QUIET,
        )
    file = kept / f"{name}.jsa"
    files = os.pathsep.join([*below, str(file)])
    return (f"-XX:SharedArchiveFile={files}", "-Xshare:auto", *QUIET) if file.exists() else ()


def archive_directory() -> Path:
    """Return the directory for the archives of this Java and of these jars.

    Java ignores an archive if a jar is another file by now, even a copy, so other files have another directory.
    """
    seen = [(jar, jar.stat()) for jar in (*shipped_jars(), *kept_jars())]
    described = [*_installation(), *(f"{jar} {file.st_size} {file.st_mtime_ns}" for jar, file in seen)]
    with contextlib.suppress(OSError):
        described.append((find_java().home / "release").read_text())
    return lab_cache() / "classes" / hashlib.sha256("\n".join(described).encode()).hexdigest()[:16]


def _installation() -> list[str]:
    """Return the files that identify this Java and this Spark."""
    return [find_java().executable, pyspark.__file__]


def make_archives() -> str:
    """Make the archives unless they exist; return why that failed, or "".

    Takes half a minute, and 200 MB. A training that fails is repeated once: perhaps the machine was only busy.
    """
    directory = archive_directory()
    if _has_all(directory):
        return ""
    directory.mkdir(parents=True, exist_ok=True)
    (directory / MADE_FOR).write_text("\n".join(_installation()))
    _delete_outdated(directory)
    for _ in range(2):
        why = _record(directory)
        if _has_all(directory):
            return ""
    return why or "Java recorded nothing"


def _has_all(directory: Path) -> bool:
    return all((directory / f"{name}.jsa").exists() for name in ARCHIVES)


def _record(directory: Path) -> str:
    """Record the archives, and put them into the directory; return the last line of an error, or ""."""
    with tempfile.TemporaryDirectory(prefix="labs-classes-", dir=directory) as fresh:
        if not find_java().home.joinpath("lib", "server", "classes.jsa").exists():
            _run([find_java().executable, "-Xshare:dump", f"-XX:SharedArchiveFile={fresh}/{BASE}"], for_program())
            _keep(Path(fresh, BASE), directory)
        training = [sys.executable, "-m", "labs.equipment.class_archive"]
        # An empty variable counts as not set: the training uses a Kafka and a Spark of its own.
        own = {TRAINING: fresh, "TMPDIR": fresh, "KAFKA_BOOTSTRAP_SERVERS": "", "SPARK_MASTER": ""}
        why = _run(training, for_python(**own))
        for name in ARCHIVES:
            _keep(Path(fresh, f"{name}.jsa"), directory)
    return why


def _delete_outdated(ours: Path) -> None:
    """Delete the archives of installations that no longer exist, and older ones of this installation."""
    for other in ours.parent.iterdir():
        made_for = (other / MADE_FOR).read_text().splitlines() if (other / MADE_FOR).exists() else []
        if other != ours and (made_for == _installation() or not made_for or not all(map(os.path.exists, made_for))):
            shutil.rmtree(other, ignore_errors=True)


def _run(command: list[str], environment: dict[str, str]) -> str:
    """Run a command; return the last line of its error, or "". It may fail: everything works without an archive."""
    try:
        ran = subprocess.run(
            command, env=environment, timeout=LONGEST, stdin=subprocess.DEVNULL, capture_output=True, text=True
        )
    except (subprocess.TimeoutExpired, OSError) as error:
        return str(error)
    said = (ran.stderr or ran.stdout).strip().splitlines() or ["it said nothing"]
    return f"status {ran.returncode}: {said[-1]}" if ran.returncode else ""


def _keep(file: Path, directory: Path) -> None:
    with contextlib.suppress(FileNotFoundError):
        file.replace(directory / file.name)


def train() -> None:
    """Run a broker and a stateful query from Kafka to Kafka, as every lesson does: the JVMs record what they load.

    Both JVMs must end cleanly, because a JVM writes its archive when it ends.
    """
    from labs.equipment.broker import Broker
    from labs.equipment.doctor import produce
    from labs.equipment.spark import spark_session
    from labs.equipment.topics import create_topic

    with Broker() as broker:
        servers = broker.bootstrap_servers
        for topic in (TOPIC, RESULTS):
            create_topic(servers, topic, partitions=1)
        produce(servers, TOPIC, {b"%d" % n for n in range(100)})
        spark = spark_session()
        for _ in range(2):
            count(spark, servers)
        gateway: Any = spark.sparkContext._gateway
        spark.stop()
        gateway.shutdown()
        gateway.proc.stdin.close()
        gateway.proc.wait()
        broker.stop()


def count(spark: SparkSession, servers: str) -> None:
    """Count in windows of event time, and write each batch to Kafka, to Spark's noop sink, and to Python."""
    from pyspark.sql import functions as F

    options = {"kafka.bootstrap.servers": servers, "subscribe": TOPIC, "startingOffsets": "earliest"}
    records = spark.readStream.format("kafka").options(**options, maxOffsetsPerTrigger=30).load()
    parsed = records.select(
        F.timestamp_millis(F.col("value").cast("string").cast("long") * 1000).alias("time"),
        F.split(F.col("value").cast("string"), ",")[0].alias("ip"),
    )
    windows = parsed.withWatermark("time", "5 seconds").groupBy(F.window("time", "5 seconds"), "ip").count()

    def write(rows: DataFrame, batch_id: int) -> None:
        values = rows.select(F.to_json(F.struct("window", "ip", "count")).alias("value"))
        values.write.format("kafka").options(**{"kafka.bootstrap.servers": servers, "topic": RESULTS}).save()
        values.write.format("noop").mode("overwrite").save()
        values.toArrow()

    with tempfile.TemporaryDirectory(prefix="labs-training-") as checkpoint:
        query = windows.writeStream.outputMode("append").foreachBatch(write)
        query.option("checkpointLocation", checkpoint).trigger(availableNow=True).start().awaitTermination()


if __name__ == "__main__":
    train()
