"""The Spark session of the lab: quiet, UTC, sized for a laptop, with the Kafka connector that fits this pyspark.

`DriverJvm`: PySpark itself waits forever for a JVM that fails without ending, or that ends with status 0. The lab
starts the JVM as PySpark does, but in its own environment and with a time limit. Guarantee: the JVM ends with this
process, however that ends, at most half a minute later.

`look_for_numpy`: with the first value that Python passes to the JVM, PySpark 4.2 imports `pyspark.testing.utils` to see
whether numpy is installed. That module imports pandas, which takes a second of a driver's start for nothing.
Guarantee: other code can import pandas before, meanwhile and afterwards. Limitations: if the process had not imported
pandas by then, `pyspark.testing` treats it as missing, and compares no pandas DataFrames.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import importlib
import os
import pwd
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from importlib.abc import MetaPathFinder
from pathlib import Path
from threading import Timer

import psutil
import py4j.java_gateway
import pyspark
from py4j.java_gateway import JavaGateway
from py4j.protocol import Py4JJavaError
from pyspark import SparkConf, SparkContext
from pyspark.errors import PySparkException
from pyspark.java_gateway import launch_gateway
from pyspark.serializers import UTF8Deserializer, read_int
from pyspark.sql import SparkSession

from labs.equipment.child_process import (
    OF_A_GATEWAY,
    UTF8,
    ChildReaper,
    drop_what_is_for_another,
    for_program,
    home,
    is_for_another,
)
from labs.equipment.class_archive import archive_options
from labs.equipment.interrupts import interrupts_wait
from labs.equipment.jars import connector_jars, local_files_jar
from labs.equipment.java import REPEAT, cure, find_java, innermost_cause
from labs.equipment.node import LOG4J, QUICK_SPARK

MAIN_FAILED = b'Exception in thread "main"'
JVM_ENDS_IN = 30  # seconds that a JVM has to end by itself
# Ctrl-C is for Python, which asks the JVM to end.
DEAF_TO_CTRL_C = ("/bin/sh", "-c", """trap '' INT; exec "$@" """, "sh")


class DriverJvm:
    """The driver's JVM: `spark-submit` of the Spark in `home` with `settings`. What it prints is appended to `log`.

    It is in this process's group, so that a signal to a job's group also reaches the job's JVM.
    """

    def __init__(self, home: str, settings: Mapping[str, str], environment: Mapping[str, str], log: Path):
        self.given_up, self._log, self._log_start = False, log, log.stat().st_size if log.exists() else 0
        self._directory = Path(tempfile.mkdtemp(prefix="gateway-", dir=log.parent))
        self._address = self._directory / "address"
        command = [*DEAF_TO_CTRL_C, f"{home}/bin/spark-submit"]
        command += [part for name, value in settings.items() for part in ("--conf", f"{name}={value}")]
        own = {"SPARK_CONNECT_MODE": "0", "_PYSPARK_DRIVER_CONN_INFO_PATH": str(self._address)}
        end, ours = os.pipe()  # the JVM ends at the end of its input, when no process holds our end of the pipe
        self._reaper = ChildReaper(patience=JVM_ENDS_IN, group=False)
        try:
            with log.open("ab") as printed:
                self.process: subprocess.Popen = self._reaper.start(
                    [*command, "pyspark-shell"], stdin=end, stdout=printed, stderr=printed, env={**environment, **own}
                )
            self.process.stdin = self._stdin = os.fdopen(ours, "wb")
        except BaseException:
            self._reaper.release()
            os.close(ours)
            raise
        finally:
            os.close(end)

    def connect(self, interrupted: Callable[[], bool]) -> JavaGateway | None:
        """Wait for the JVM, and return PySpark's connection to it; None if it has ended or failed, or `interrupted`."""
        while not self._address.exists():
            if self.process.poll() is not None or interrupted() or self._failed():
                return None
            time.sleep(0.02)
        with self._address.open("rb") as address:
            values = str(read_int(address)), UTF8Deserializer().loads(address)
        with _variables(dict(zip(OF_A_GATEWAY, values, strict=True))):
            gateway = launch_gateway()
        gateway.proc = self.process
        return gateway

    def _failed(self) -> bool:
        """Tell whether the JVM's main thread has failed: other threads may keep the JVM alive forever."""
        if MAIN_FAILED not in self._log.read_bytes()[self._log_start :]:
            return False
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(2)  # gives the JVM time to print the cause
        return True

    @contextlib.contextmanager
    def given_up_after(self, seconds: float) -> Iterator[Timer]:
        """Kill the JVM when the block has lasted that long, so that no caller waits forever for its answer."""
        timer = Timer(seconds, self._give_up)
        timer.daemon = True
        timer.start()
        try:
            yield timer
        finally:
            timer.cancel()

    def _give_up(self) -> None:
        self.given_up = True
        self.kill()

    def end(self) -> None:
        """Let the JVM end, and kill it if it has not ended after JVM_ENDS_IN seconds."""
        with contextlib.suppress(OSError, subprocess.TimeoutExpired):
            self._stdin.close()  # the JVM ends at the end of its input
            self.process.wait(JVM_ENDS_IN)
        self.kill()

    def kill(self) -> None:
        """SIGKILL the process and its descendants: Spark's scripts start others before they become the JVM."""
        with contextlib.suppress(psutil.NoSuchProcess):
            family = psutil.Process(self.process.pid)
            for each in (family, *family.children(recursive=True)):
                with contextlib.suppress(psutil.Error):
                    each.kill()
        self.process.wait()
        self._reaper.release()


@contextlib.contextmanager
def _variables(own: dict[str, str]) -> Iterator[None]:
    os.environ |= own
    try:
        yield
    finally:
        for name in own:
            del os.environ[name]


class Hidden(MetaPathFinder):
    """A finder that hides one module from the thread that created it."""

    def __init__(self, name: str):
        self._name, self._thread = name, threading.get_ident()

    def find_spec(self, fullname: str, path: Sequence[str] | None, target: object = None) -> None:
        if fullname == self._name and threading.get_ident() == self._thread:
            raise ModuleNotFoundError(f"No module named {fullname!r}", name=fullname)


def look_for_numpy() -> None:
    """Import the module with which PySpark looks for numpy, unless it has been imported; pandas is hidden from it."""
    hidden = Hidden("pandas")
    sys.meta_path.insert(0, hidden)
    try:
        importlib.import_module("pyspark.testing.utils")
    except ImportError:  # another PySpark, which may look elsewhere
        pass
    finally:
        sys.meta_path.remove(hidden)


LOCAL_MASTER = "local[2]"
SET_BY_THE_LAB = ("SPARK_HOME", "SPARK_LAUNCHER_OPTS")  # with any master
LONGEST_START = 600  # seconds for a start on this machine; an idle machine takes 8, a very busy one 200
_one_at_a_time = threading.Lock()
_jvm: DriverJvm | None = None  # that this process has started
LAUNCHER_OPTIONS = " ".join(QUICK_SPARK)  # of the JVM that only builds the command
# With this collector, a query counts a tenth more records a second than with Java's default, which aims at short
# pauses. Java's second compiler (C2) competes with the batches for the processor, so code must run ten times as
# often as by default before C2 compiles it. Code that runs for each record does so within a second; code that plans a
# batch hardly ever does.
LONG_RUN = (
    "-XX:+UseParallelGC",
    "-XX:Tier4InvocationThreshold=50000",
    "-XX:Tier4MinInvocationThreshold=6000",
    "-XX:Tier4CompileThreshold=150000",
    "-XX:Tier4BackEdgeThreshold=400000",
)
# As much memory as a start needs, so that the JVM collects no garbage during the start; by default it does 15 times.
DRIVER_MEMORY = ("-XX:InitialHeapSize=448m", "-XX:NewSize=256m", "-XX:MetaspaceSize=192m")


class SparkError(RuntimeError):
    """Spark did not start or did not answer. `what` says what happened, with the innermost cause."""

    def __init__(self, what: str, what_to_do: str):
        super().__init__(f"{what}. {what_to_do}")
        self.what, self.what_to_do = what, what_to_do


class JvmEnded(Exception):
    """The driver's JVM ended before it answered."""


def spark_session(app: str = "exactly-once-lab", quick_start: bool = True, **settings: str) -> SparkSession:
    """Return the lab's session; a second call returns the same one.

    SPARK_MASTER names a cluster to run on instead of this machine: spark://host:port, `local-cluster[2,1,1024]`,
    yarn, k8s://… The options of spark-submit (--master, --conf, --jars, …) override everything here. `quick_start`
    halves the time in which the JVMs start, and makes long runs slower: benchmarks turn it off. `settings` are Spark
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
    environment: dict[str, str] = {}
    if not submitted:
        _require_name()
        environment = _environment(master, here)
        wanted |= _settings_at_launch(quick_start)
        if here:
            wanted |= _quick_files()
        if master.startswith("local["):
            wanted |= _quick_classes(wanted)
    wanted |= _dotted(settings)
    wanted = {name: value for name, value in wanted.items() if name not in submitted}
    _leave_the_root_logger_alone()
    with interrupts_wait() as interrupted, _interrupts_as_before():
        threading.Thread(target=look_for_numpy, daemon=True).start()  # while the JVM starts
        session = _start(wanted, environment, here, interrupted)
    assert session, "or a KeyboardInterrupt"
    if master.startswith("local-cluster"):
        atexit.register(_stop, session)
    return session


def _start(
    wanted: dict[str, str], environment: dict[str, str], here: bool, interrupted: threading.Event
) -> SparkSession | None:
    """Start the JVM, unless there is one, and the session in it; None if `interrupted`. Raises SparkError."""
    global _jvm
    kept = [] if here else [name for name in os.environ if is_for_another(name) and name not in SET_BY_THE_LAB]
    began = spark_log().stat().st_size
    builder = SparkSession.builder.config(map=dict(wanted))
    if SparkContext._gateway is not None:
        try:
            return builder.getOrCreate()
        except Exception as error:
            raise _failed(_said(error) or repr(error)) from error
    _jvm = DriverJvm(environment["SPARK_HOME"], wanted, environment, spark_log())
    try:
        with _jvm.given_up_after(LONGEST_START) as timer:
            gateway = _jvm.connect(interrupted.is_set)
            if gateway is None:
                raise JvmEnded
            if not here:
                timer.cancel()  # on a cluster it may have to wait for executors
            SparkContext._ensure_initialized(gateway=gateway)
            return builder.getOrCreate()
    except BaseException as error:
        given_up, said = _jvm.given_up, _said(error)  # before the JVM ends, since that has the trace
        _jvm.kill()
        end_jvm()
        if interrupted.is_set():
            return None
        if not isinstance(error, Exception):
            raise
        with spark_log().open("rb") as log:
            log.seek(began)
            printed = log.read().decode(errors="replace")
        raise _failed(said or printed, given_up, kept) from None  # Java's exception needs its JVM to be shown


def _said(error: BaseException) -> str:
    """Return Java's trace of an error; "" if the error is not Java's, or the JVM has ended."""
    if isinstance(error, (Py4JJavaError, PySparkException)):
        with contextlib.suppress(Exception):
            return str(error)
    return ""


def _failed(said: str, given_up: bool = False, kept: Collection[str] = ()) -> SparkError:
    cause = innermost_cause(said)
    what = f"Spark's Java did not answer within {LONGEST_START} s, and was ended" if given_up else "Spark did not start"
    return SparkError(f"{what}: {cause or 'Java printed no cause'}", cure(cause or "", kept))


def _require_name() -> None:
    """Raise SparkError if the user has no name on this machine: Spark's Java always needs one."""
    try:
        pwd.getpwuid(os.geteuid())
    except KeyError:
        entry = f"echo 'lab:x:{os.geteuid()}:{os.getegid()}::{home()}:/bin/sh' >> /etc/passwd"
        raise SparkError(
            f"Spark did not start: user {os.geteuid()} has no name on this machine, and Java needs one",
            f"Run as a user that `id -un` knows, or as root: {entry}",
        ) from None


def end_jvm() -> None:
    """End the JVM of a stopped session, if there is one, so that the next session gets a new one.

    If the very first Kafka task in a JVM was stopped, a class may have failed to initialise there for good.
    """
    global _jvm
    gateway, SparkContext._gateway, SparkContext._jvm = SparkContext._gateway, None, None
    # An interrupted start may have left these; PySpark would use them, and their JVM has ended.
    SparkContext._active_spark_context = SparkSession._instantiatedSession = SparkSession._activeSession = None
    if gateway is not None:
        with contextlib.suppress(Exception):  # it may be gone already
            gateway.shutdown()
    if _jvm is not None:
        _jvm.end()
        _jvm = None


@contextlib.contextmanager
def given_up_after(seconds: float) -> Iterator[None]:
    """End Spark's JVM if the block lasts longer than `seconds`; the block then raises SparkError."""
    with contextlib.ExitStack() as stack:
        if (jvm := _jvm) is not None:
            stack.enter_context(jvm.given_up_after(seconds))
        try:
            yield
        except Exception as error:
            if jvm is None or not jvm.given_up:
                raise
            raise SparkError(f"Spark's Java did not answer within {seconds:g} s, and was ended", REPEAT) from error


def on_this_machine(master: str) -> bool:
    """Tell whether Spark's executors run on this machine, from the master's address."""
    return re.match(r"local\b|spark://(127\.0\.0\.1|localhost)[:,]", master) is not None


def _stop(session: SparkSession) -> None:
    # If the JVM ends without this, a local-cluster first replaces the executors that end, about twenty times.
    with contextlib.suppress(Exception):  # the JVM may be gone already
        session.stop()


def spark_log() -> Path:
    """Return the log file of this process's Spark, which exists until this process ends."""
    return _temporary() / "spark.log"


def _temporary() -> Path:
    """Return the directory for the files of this process's Spark: below TMPDIR, until this process ends."""
    with _one_at_a_time:
        return _temporary_and_reaper()[0]


@functools.cache
def _temporary_and_reaper() -> tuple[Path, ChildReaper]:
    # Spark tidies up unless it is killed; a notebook's kernel is often killed, and its JVM with it.
    directory = Path(tempfile.mkdtemp(prefix="labs-spark-"))
    (directory / "spark.log").touch()
    return directory, ChildReaper(directory)


def _submitted() -> dict[str, str]:
    """Return the settings of spark-submit; nothing if this process was started without it."""
    if "PYSPARK_GATEWAY_PORT" not in os.environ:
        return {}
    SparkContext._ensure_initialized()  # connects to spark-submit's JVM, whose properties they are
    return dict(SparkConf().getAll())


def _environment(master: str, here: bool) -> dict[str, str]:
    """Return the environment of the driver's JVM; set what PySpark reads itself in this process, too.

    On this machine it is the lab's own environment. With a cluster in SPARK_MASTER it keeps what was set for that.
    """
    # Another Spark's jars would not fit the connector.
    own = {"JAVA_HOME": str(find_java().home), "SPARK_HOME": str(_spark_home(master))}
    if not here:
        own["SPARK_LAUNCHER_OPTS"] = os.environ.get("SPARK_LAUNCHER_OPTS", LAUNCHER_OPTIONS)
        os.environ |= own
        return {**os.environ, **UTF8}
    own |= {"PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1", "SPARK_LAUNCHER_OPTS": LAUNCHER_OPTIONS}
    drop_what_is_for_another()
    os.environ |= own
    # The executors' Python finds modules where this one does.
    return for_program(**own, PYTHONPATH=os.environ.get("PYTHONPATH", ""))


def _spark_home(master: str) -> Path:
    shipped = Path(pyspark.__file__).parent
    if not master.startswith("local-cluster"):
        return shipped
    # Its executors work in SPARK_HOME/work, with a copy of every jar, and Spark does not clean up there.
    home = Path(tempfile.mkdtemp(prefix="home-", dir=_temporary()))
    for each in shipped.iterdir():
        if each.name != "work":
            (home / each.name).symlink_to(each)
    return home


def _settings_at_launch(quick_start: bool) -> dict[str, str]:
    """Return the settings that the driver's JVM needs at its start; under spark-submit it has started before."""
    options = [
        f"-Dlog4j2.configurationFile={LOG4J.as_uri()}",
        *_directories(),
        *(QUICK_SPARK if quick_start else LONG_RUN),
        *DRIVER_MEMORY,
    ]
    return {
        "spark.driver.extraJavaOptions": " ".join(options),
        "spark.driver.memory": "2g",
        "spark.jars": ",".join(jar.as_uri() for jar in connector_jars()),
    }


def _directories() -> list[str]:
    """Return the options with Java's directories: without an entry in the list of users, Java finds no home."""
    return [_quoted(f"-Djava.io.tmpdir={_temporary()}"), _quoted(f"-Duser.home={home()}")]


def _quoted(option: str) -> str:
    """Quote an option of Java for Spark, which splits the options at blanks."""
    return '"' + option.replace("\\", "\\\\").replace('"', '\\"') + '"'


def _quick_files() -> dict[str, str]:
    """Return the settings that halve the time of a small batch, for which Hadoop would start 15 processes.

    Without its native library, which pip's pyspark does not have, Hadoop runs `chmod` for every local file that it
    writes and `readlink` for every one that it renames.
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
    """Return the settings for a class archive, which covers the JVM's class path but not `spark.jars`."""
    jars = [*map(str, connector_jars()), str(local_files_jar())]
    return {
        "spark.jars": "",
        "spark.driver.extraClassPath": os.pathsep.join(jars),
        "spark.driver.extraJavaOptions": " ".join(
            [wanted["spark.driver.extraJavaOptions"], *map(_quoted, archive_options("spark"))]
        ),
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
            "spark.executor.extraJavaOptions": " ".join([*_directories(), *(QUICK_SPARK if quick_start else LONG_RUN)]),
        }
    return settings


def _dotted(settings: dict[str, str]) -> dict[str, str]:
    return {key.replace("_", "."): value for key, value in settings.items()}


def _leave_the_root_logger_alone() -> None:
    """Make py4j report an interrupted call to its own logger.

    By default it calls `logging.exception`, which adds a handler to the root logger: from then on, py4j's traceback of
    every exception that a query passes on is printed.
    """
    py4j.java_gateway.logging = py4j.java_gateway.logger


@contextlib.contextmanager
def _interrupts_as_before() -> Iterator[None]:
    """Leave Ctrl-C to Python: Spark's handler would call the JVM in the middle of another call."""
    handler = signal.getsignal(signal.SIGINT)
    try:
        yield
    finally:
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGINT, handler)
