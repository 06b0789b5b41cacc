"""The environment variables of a child process, and the directories that a child may write to.

Every JVM and every Python of the lab gets its environment variables here. They leave out what this machine has set for
another Spark or Hadoop, or for all of its JVMs, Pythons or shells. Proxies, PATH and JAVA_HOME stay, and so do the
lab's own settings, KAFKA_BOOTSTRAP_SERVERS and SPARK_MASTER. Limitations: a Spark under spark-submit, or on a cluster
that SPARK_MASTER names, keeps what was set for it.
"""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
UTF8 = {"LC_ALL": "C.UTF-8"}  # a JVM cannot enter café/ in the C locale
OF_SPARK = ("SPARK_", "PYSPARK_", "_PYSPARK_", "HADOOP_", "YARN_", "HIVE_", "LOG4J_")
OF_OTHER_ENGINES = ("FLINK_", "PYFLINK_", "QUIX__")
# Read by every JVM, or by every bash, which Spark's scripts are.
OF_JAVA = ("JAVA_TOOL_OPTIONS", "_JAVA_OPTIONS", "JDK_JAVA_OPTIONS", "JDK_JAVAC_OPTIONS", "OPENJ9_JAVA_OPTIONS")
OF_JAVA_AND_SHELLS = (*OF_JAVA, "IBM_JAVA_OPTIONS", "CLASSPATH", "BASH_ENV", "ENV", "CDPATH", "SHELLOPTS", "BASHOPTS")
OF_THE_LAB = ("SPARK_MASTER",)
# These only say where Python puts its bytecode.
KEPT_OF_PYTHON = ("PYTHONDONTWRITEBYTECODE", "PYTHONPYCACHEPREFIX")
OF_OUR_PYTHON = {"PYTHONPATH": str(ROOT), "PYTHONUTF8": "1", "PYTHONUNBUFFERED": "1", "PYTHONSAFEPATH": "1"}
OF_A_GATEWAY = ("PYSPARK_GATEWAY_PORT", "PYSPARK_GATEWAY_SECRET")  # for the JVM of one driver only


def for_program(**own: str) -> dict[str, str]:
    """Return the environment of a JVM of the lab, a database or another engine's program; `own` adds variables."""
    return {**_without(lambda name: is_for_another(name) or _is_for_another_python(name)), **UTF8, **own}


def for_python(**own: str) -> dict[str, str]:
    """Return the environment of a Python that runs the lab's own modules; `own` adds variables.

    That Python imports no module from its working directory, unless PYTHONSAFEPATH is empty. Variables for Spark stay:
    `spark_session` decides about them, since it knows the master.
    """
    kept = _without(lambda name: _is_for_another_python(name) or name in OF_A_GATEWAY)
    return {**kept, **UTF8, **OF_OUR_PYTHON, **own}


def is_for_another(name: str) -> bool:
    """Tell whether a variable is meant for a Spark, a Hadoop, a JVM or a shell that is not the lab's."""
    if name.startswith("BASH_FUNC_") or name in OF_JAVA_AND_SHELLS:
        return True
    return name.upper().startswith((*OF_SPARK, *OF_OTHER_ENGINES)) and name not in OF_THE_LAB


def drop_what_is_for_another() -> None:
    """Delete variables that are not for the lab's Spark from this process's environment: PySpark reads them, too."""
    for name in list(filter(is_for_another, os.environ)):
        del os.environ[name]


def cache(name: str, below: str | None = None) -> Path:
    """Return the user's cache directory of this name: in `below`, if that is absolute, else in ~/.cache.

    If it does not exist and cannot be created, return one in `home()`.
    """
    with contextlib.suppress(RuntimeError):  # no home
        caches = Path(below) if below and os.path.isabs(below) else Path.home() / ".cache"
        wanted = caches.absolute() / name
        if wanted.exists() or os.access(next(filter(Path.exists, wanted.parents)), os.W_OK | os.X_OK):
            return wanted
    return home() / ".cache" / name


def home() -> Path:
    """Return the user's home, or a directory below TMPDIR if the home does not exist or cannot be written to.

    A user id without an entry in the list of users, as in containers, may have no home.
    """
    with contextlib.suppress(RuntimeError):
        found = Path.home()
        if found.is_absolute() and os.access(found, os.W_OK | os.X_OK):
            return found
    own = Path(tempfile.gettempdir(), f"exactly-once-lab-{os.getuid()}").absolute()
    own.mkdir(mode=0o700, exist_ok=True)
    if own.is_symlink() or own.stat().st_uid != os.getuid():
        raise PermissionError(f"{own} belongs to another user; set HOME to a directory of yours")
    return own


def _without(unwanted: Callable[[str], bool]) -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if not unwanted(name)}


def _is_for_another_python(name: str) -> bool:
    return name.startswith("PYTHON") and name not in KEPT_OF_PYTHON
