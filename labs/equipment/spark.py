"""The Spark session of the lab: quiet, UTC, sized for a laptop, with the Kafka connector that fits this pyspark."""

from __future__ import annotations

import atexit
import contextlib
import functools
import os
import re
import signal
import sys
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path

import py4j.java_gateway
import pyspark
from pyspark import SparkConf, SparkContext
from pyspark.sql import SparkSession

from labs.equipment.class_archive import archive_options
from labs.equipment.interrupts import interrupts_wait
from labs.equipment.jars import connector_jars, local_files_jar
from labs.equipment.java import find_java
from labs.equipment.leash import Leash
from labs.equipment.node import LOG4J, QUICK_SPARK
from labs.equipment.without_pandas import look_for_numpy

LOCAL_MASTER = "local[2]"
_one_at_a_time = threading.Lock()
# What a start needs, so that no garbage is collected before there is some: by default it is collected fifteen times.
QUICK_DRIVER = (*QUICK_SPARK, "-XX:InitialHeapSize=448m", "-XX:NewSize=256m", "-XX:MetaspaceSize=192m")


class SparkError(RuntimeError):
    """Spark could not be started."""


def spark_session(app: str = "exactly-once-lab", quick_start: bool = True, **settings: str) -> SparkSession:
    """Return the lab's session; a second call returns the same one.

    SPARK_MASTER names a cluster to run on instead of this machine: spark://host:port, `local-cluster[2,1,1024]`,
    yarn, k8s://… Under spark-submit, what it was told (--master, --conf, --jars, …) goes before everything here.
    `quick_start` halves the start of the JVMs and makes long runs slower: off for benchmarks. `settings` are Spark
    settings with `_` for `.`. Spark's own log goes to the file `spark_log()`. Raises SparkError.
    """
    running = SparkSession.getActiveSession()
    if running:
        return running
    submitted = _submitted()
    wanted = {"spark.app.name": app, "spark.master": os.environ.get("SPARK_MASTER") or LOCAL_MASTER}
    master = (wanted | submitted)["spark.master"]
    here = on_this_machine(master)
    wanted |= _settings(here, quick_start)
    if not submitted:
        _prepare_environment(master, here)
        wanted |= _settings_at_launch(quick_start)
        if here:
            wanted |= _quick_files()
        if master.startswith("local["):
            wanted |= _quick_classes(wanted)
    builder = SparkSession.builder
    for key, value in (wanted | _dotted(settings)).items():
        if key not in submitted:
            builder = builder.config(key, value)
    _leave_the_root_logger_alone()
    try:
        with interrupts_wait(), _standard_error_to(spark_log()), _interrupts_as_before():
            threading.Thread(target=look_for_numpy, daemon=True).start()  # while the JVM starts
            session = builder.getOrCreate()
    except Exception as error:
        lines = spark_log().read_text(errors="replace").splitlines()
        telling = [line for line in lines if not line.startswith("\tat ")][-15:]
        raise SparkError("\n  ".join([f"Spark did not start. Last lines of {spark_log()}:", *telling])) from error
    if master.startswith("local-cluster"):
        atexit.register(_stop, session)
    return session


def end_jvm() -> None:
    """End the JVM that a stopped session has left, so that the next one gets a new one; nothing if there is none.

    A JVM whose very first Kafka task was stopped may be left with a class that it could not initialise, for ever.
    """
    gateway, SparkContext._gateway, SparkContext._jvm = SparkContext._gateway, None, None
    if gateway is not None:
        with contextlib.suppress(Exception):  # it may be gone already
            gateway.shutdown()
            gateway.proc.stdin.close()  # which it takes for its end
            gateway.proc.wait(30)


def on_this_machine(master: str) -> bool:
    """Tell whether Spark's executors run on this machine, from the master's address."""
    return re.match(r"local\b|spark://(127\.0\.0\.1|localhost)[:,]", master) is not None


def _stop(session: SparkSession) -> None:
    # Left to the end of the JVM, a local-cluster starts executors anew for those that end, twenty times over.
    with contextlib.suppress(Exception):  # the JVM may be gone already
        session.stop()


def spark_log() -> Path:
    """Return the file that holds what this process's Spark had to say, until this process ends."""
    return _temporary() / "spark.log"


def _temporary() -> Path:
    """Return the directory of what this process's Spark leaves behind: below TMPDIR, until this process ends."""
    with _one_at_a_time:
        return _temporary_on_a_leash()[0]


@functools.cache
def _temporary_on_a_leash() -> tuple[Path, Leash]:
    # Spark tidies up unless it is killed; a notebook's kernel often is, and its JVM with it.
    directory = Path(tempfile.mkdtemp(prefix="labs-spark-"))
    (directory / "spark.log").touch()
    return directory, Leash(directory)


def _submitted() -> dict[str, str]:
    """Return the settings that spark-submit was given; nothing in a process that spark-submit did not start."""
    if "PYSPARK_GATEWAY_PORT" not in os.environ:
        return {}
    SparkContext._ensure_initialized()  # connects to spark-submit's JVM, whose properties they are
    return dict(SparkConf().getAll())


def _prepare_environment(master: str, here: bool) -> None:
    os.environ["JAVA_HOME"] = str(find_java().home)
    os.environ["SPARK_HOME"] = str(_spark_home(master))  # another Spark's jars would not fit the connector
    os.environ.setdefault("SPARK_LAUNCHER_OPTS", " ".join(QUICK_SPARK))  # of the JVM that only makes up the command
    if here:
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")


def _spark_home(master: str) -> Path:
    shipped = Path(pyspark.__file__).parent
    if not master.startswith("local-cluster"):
        return shipped
    # Its executors work in SPARK_HOME/work, with a copy of every jar, and nobody cleans up there.
    home = Path(tempfile.mkdtemp(prefix="home-", dir=_temporary()))
    for each in shipped.iterdir():
        if each.name != "work":
            (home / each.name).symlink_to(each)
    return home


def _settings_at_launch(quick_start: bool) -> dict[str, str]:
    """Return what the driver's JVM must know when it starts; under spark-submit it has started."""
    options = [
        f"-Dlog4j2.configurationFile={LOG4J.as_uri()}",
        _temporary_option(),
        *(QUICK_DRIVER if quick_start else ()),
    ]
    return {
        "spark.driver.extraJavaOptions": " ".join(options),
        "spark.driver.memory": "2g",
        "spark.jars": ",".join(jar.as_uri() for jar in connector_jars()),
    }


def _temporary_option() -> str:
    return f'"-Djava.io.tmpdir={_temporary()}"'


def _quick_files() -> dict[str, str]:
    """Return what halves the time of a small batch: Hadoop's own way with local files starts 15 processes in each.

    Without its native library, which pip's pyspark does not have, Hadoop runs `chmod` for every file that it writes
    and `readlink` for every one that it renames.
    """
    jar = str(local_files_jar())
    return {
        "spark.driver.extraClassPath": jar,
        "spark.executor.extraClassPath": jar,
        "spark.hadoop.fs.file.impl": "com.globalmentor.apache.hadoop.fs.BareLocalFileSystem",
        "spark.sql.streaming.checkpointFileManagerClass": (
            "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
        ),
    }


def _quick_classes(wanted: dict[str, str]) -> dict[str, str]:
    """Return what lets the JVM take its classes from an archive, which covers the class path and not `spark.jars`."""
    jars = [*map(str, connector_jars()), str(local_files_jar())]
    return {
        "spark.jars": "",
        "spark.driver.extraClassPath": os.pathsep.join(jars),
        "spark.driver.extraJavaOptions": " ".join([wanted["spark.driver.extraJavaOptions"], *archive_options("spark")]),
    }


def _settings(here: bool, quick_start: bool) -> dict[str, str]:
    settings = {
        "spark.executor.memory": "1g",
        "spark.sql.session.timeZone": "UTC",
        # Two state stores instead of 200: on one machine that is three times faster.
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.warehouse.dir": str(_temporary() / "warehouse"),
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
    }
    if here:
        settings |= {
            "spark.driver.host": "127.0.0.1",
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.executor.extraJavaOptions": " ".join([_temporary_option(), *(QUICK_SPARK if quick_start else ())]),
        }
    return settings


def _dotted(settings: dict[str, str]) -> dict[str, str]:
    return {key.replace("_", "."): value for key, value in settings.items()}


def _leave_the_root_logger_alone() -> None:
    """Let py4j tell its own logger of an interrupted call.

    By itself it calls `logging.exception`, which gives the root logger a handler: from then on every exception that a
    query passes on is printed with py4j's traceback.
    """
    py4j.java_gateway.logging = py4j.java_gateway.logger


@contextlib.contextmanager
def _interrupts_as_before() -> Iterator[None]:
    """Leave Ctrl-C to Python: Spark's handler would ask the JVM something in the middle of another question."""
    handler = signal.getsignal(signal.SIGINT)
    try:
        yield
    finally:
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGINT, handler)


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
