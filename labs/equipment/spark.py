"""The Spark session of the lab: quiet, UTC, sized for a laptop, with the Kafka connector that fits this pyspark."""

from __future__ import annotations

import atexit
import contextlib
import functools
import os
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pyspark
from pyspark.sql import SparkSession

from labs.equipment.jars import connector_jars
from labs.equipment.java import find_java
from labs.equipment.node import LOG4J, QUICK_START

LOCAL_MASTER = "local[2]"


class SparkError(RuntimeError):
    """Spark could not be started."""


def spark_session(app: str = "exactly-once-lab", quick_start: bool = True, **settings: str) -> SparkSession:
    """Return the lab's session; a second call returns the same one.

    SPARK_MASTER names a cluster to run on instead of this machine. `quick_start` halves the JVM's start and
    makes long runs slower: off for benchmarks. `settings` are Spark settings with `_` for `.`.
    Spark's own log goes to the file `spark_log()`. Raises SparkError.
    """
    running = SparkSession.getActiveSession()
    if running:
        return running
    os.environ["JAVA_HOME"] = str(find_java().home)
    os.environ["SPARK_HOME"] = str(Path(pyspark.__file__).parent)  # another Spark's jars would not fit the connector
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    if _on_this_machine():
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    builder = SparkSession.builder.appName(app).master(os.environ.get("SPARK_MASTER", LOCAL_MASTER))
    for key, value in {**_settings(quick_start), **_dotted(settings)}.items():
        builder = builder.config(key, value)
    try:
        with _standard_error_to(spark_log()):
            return builder.getOrCreate()
    except Exception as error:
        lines = spark_log().read_text(errors="replace").splitlines()[-15:]
        raise SparkError("\n  ".join([f"Spark did not start. Last lines of {spark_log()}:", *lines])) from error


@functools.cache
def spark_log() -> Path:
    """Return the file that holds what this process's Spark had to say, until this process ends."""
    handle, name = tempfile.mkstemp(prefix="labs-spark-", suffix=".log")
    os.close(handle)
    atexit.register(Path(name).unlink, missing_ok=True)
    return Path(name)


def _settings(quick_start: bool) -> dict[str, str]:
    options = [f"-Dlog4j2.configurationFile={LOG4J.as_uri()}", *(QUICK_START if quick_start else ())]
    settings = {
        "spark.driver.extraJavaOptions": " ".join(options),
        "spark.driver.memory": "2g",
        "spark.jars": ",".join(jar.as_uri() for jar in connector_jars()),
        "spark.sql.session.timeZone": "UTC",
        # Two state stores instead of 200: on one machine that is three times faster.
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.warehouse.dir": str(Path(tempfile.gettempdir()) / "labs-spark-warehouse"),
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
    }
    if _on_this_machine():
        settings |= {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}
    return settings


def _on_this_machine() -> bool:
    return os.environ.get("SPARK_MASTER", LOCAL_MASTER).startswith("local")


def _dotted(settings: dict[str, str]) -> dict[str, str]:
    return {key.replace("_", "."): value for key, value in settings.items()}


@contextlib.contextmanager
def _standard_error_to(file: Path) -> Iterator[None]:
    """Let children that start meanwhile write their standard error to `file` instead of into a lesson."""
    sys.stderr.flush()
    kept = os.dup(2)
    with file.open("ab") as log:
        os.dup2(log.fileno(), 2)
    try:
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)
