"""Class-data archives: the classes of a JVM in a file that the next JVM maps, instead of reading and checking jars.

A broker and a Spark driver load some ten thousand classes each at every start; `make_archives` records which, once,
and a start then takes a third less of the processor. Where it stops: an archive serves the Java and the jars that it
was made with; with any other the JVM starts as without one.
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

import pyspark

from labs.equipment.child_environment import for_program, for_python
from labs.equipment.jars import kept_jars, shipped_jars
from labs.equipment.java import find_java, lab_cache

ARCHIVES = ("broker", "spark")
MADE_FOR = "made-for"  # names the installation
BASE = "base.jsa"  # of Java's own classes: a trimmed Java comes without one, and no other archive does without it
TRAINING = "LABS_TRAIN_ARCHIVES"  # set to a directory: JVMs that start record what they load, and write it there
LONGEST = 600  # seconds that the training may take on a slow machine
QUIET = ("-Xlog:cds=off", "-Xlog:cds+dynamic=off")  # an archive of other jars is no news


def archive_options(name: str) -> tuple[str, ...]:
    """Return the JVM options that use the archive `name`, or record it in a training; none where there is none."""
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
    """Return the directory for the archives of this Java and of the jars that are here.

    Java takes no archive when a jar has become another file since, be it a copy of the same, so those have another.
    """
    seen = [(jar, jar.stat()) for jar in (*shipped_jars(), *kept_jars())]
    described = [*_installation(), *(f"{jar} {file.st_size} {file.st_mtime_ns}" for jar, file in seen)]
    with contextlib.suppress(OSError):
        described.append((find_java().home / "release").read_text())
    return lab_cache() / "classes" / hashlib.sha256("\n".join(described).encode()).hexdigest()[:16]


def _installation() -> list[str]:
    """Return the files by which this Java and this Spark are known."""
    return [find_java().executable, pyspark.__file__]


def make_archives() -> str:
    """Make the archives unless they are there; return why they are not there now, "" if they are.

    Takes half a minute, and 200 MB. A training that fails is repeated once: a busy machine may be the whole reason.
    """
    directory = archive_directory()
    if _has_all(directory):
        return ""
    directory.mkdir(parents=True, exist_ok=True)
    (directory / MADE_FOR).write_text("\n".join(_installation()))
    _delete_outdated(directory)
    for _ in range(2):
        why = _train(directory)
        if _has_all(directory):
            return ""
    return why or "Java recorded nothing"


def _has_all(directory: Path) -> bool:
    return all((directory / f"{name}.jsa").exists() for name in ARCHIVES)


def _train(directory: Path) -> str:
    """Record, and put into the directory what came of it; return the last line of what went wrong."""
    with tempfile.TemporaryDirectory(prefix="labs-classes-", dir=directory) as fresh:
        if not find_java().home.joinpath("lib", "server", "classes.jsa").exists():
            _run([find_java().executable, "-Xshare:dump", f"-XX:SharedArchiveFile={fresh}/{BASE}"], for_program())
            _keep(Path(fresh, BASE), directory)
        training = [sys.executable, "-m", "labs.equipment.class_training"]
        # Empty is as good as not set: a Kafka and a Spark of its own.
        own = {TRAINING: fresh, "TMPDIR": fresh, "KAFKA_BOOTSTRAP_SERVERS": "", "SPARK_MASTER": ""}
        why = _run(training, for_python(**own))
        for name in ARCHIVES:
            _keep(Path(fresh, f"{name}.jsa"), directory)
    return why


def _delete_outdated(ours: Path) -> None:
    """Delete the archives of what is gone, such as a checkout that was deleted, and older ones of this installation."""
    for other in ours.parent.iterdir():
        made_for = (other / MADE_FOR).read_text().splitlines() if (other / MADE_FOR).exists() else []
        if other != ours and (made_for == _installation() or not made_for or not all(map(os.path.exists, made_for))):
            shutil.rmtree(other, ignore_errors=True)


def _run(command: list[str], environment: dict[str, str]) -> str:
    """Run a command that may fail, since everything works without an archive; return the last line of its error."""
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
