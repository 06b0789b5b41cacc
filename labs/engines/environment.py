"""The environment of an engine: the packages that the lab itself does not have, in a folder of the lab's cache.

Guarantee: a folder with an environment's name is complete. It is made under another name and renamed when all is
there; the next attempt removes what an interrupted one left. The name contains a hash of what the environment is made
from, so a change makes another folder.

Java programs are compiled from one source file of the lab, with jars whose checksums are verified. The compiler, javac,
is part of a JDK, which the lab does not install: the Java that the lab runs on need not have one.

An engine in Python has a virtual environment, since its packages conflict with the lab's. uv makes it from a lock file
with all checksums. uv downloads no Python, and builds packages from source only with build tools that the lock names.
"""

from __future__ import annotations

import abc
import hashlib
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from labs.equipment.child_process import for_program
from labs.equipment.jars import JarsNotFetched, flink_connector_jars, streams_jars
from labs.equipment.java import OLDEST, find_java, lab_cache
from labs.equipment.waiting import alone_in

Say = Callable[[str], object]
Jars = Callable[[], tuple[Path, ...]]


class NotInstalled(RuntimeError):
    """The engine has no environment on this machine."""


class InstallFailed(RuntimeError):
    """An environment could not be made; an older one is unchanged."""


@dataclass(frozen=True)
class Environment(abc.ABC):
    """An engine's environment, installed or not. Sizes in megabytes: downloaded, and kept on disk."""

    engine: str
    fetched_mb: int
    kept_mb: int

    @property
    @abc.abstractmethod
    def made_from(self) -> bytes:
        """The bytes that determine its content."""

    @abc.abstractmethod
    def make(self, folder: Path, say: Say) -> None:
        """Make it as this folder, which does not exist yet. Raises InstallFailed."""

    @property
    def folder(self) -> Path:
        return lab_cache() / "engines" / f"{self.engine}-{hashlib.sha256(self.made_from).hexdigest()[:12]}"

    @property
    def installed(self) -> bool:
        return self.folder.exists()

    def needed(self) -> Path:
        """Return the folder. Raises NotInstalled."""
        if not self.installed:
            raise NotInstalled(f"{self.engine} is not installed; run: python -m labs engines install {self.engine}")
        return self.folder

    def remove(self) -> None:
        """Delete the environment, its older versions, and what interrupted attempts left."""
        for each in self.folder.parent.glob(f"{self.engine}-*"):
            shutil.rmtree(each)

    def install(self, say: Say = lambda line: None) -> None:
        """Make the environment unless it is there; `say` is called with each line of progress. Raises InstallFailed."""
        if self.installed:
            return
        with alone_in(self.folder.parent):
            if not self.installed:  # another process may have made it while this one waited for the lock
                self._make(say)

    def fetched(self, jars: Jars) -> tuple[Path, ...]:
        """Return the jars, verified, and downloaded if they are missing. Raises InstallFailed, JarRefused."""
        try:
            return jars()
        except JarsNotFetched as error:
            raise self.failed(str(error).partition("\n")[0]) from error

    def failed(self, why: str) -> InstallFailed:
        return InstallFailed(f"{self.engine} was not installed, and nothing was changed: {why}")

    def _make(self, say: Say) -> None:
        for left in self.folder.parent.glob(f"{self.engine}-*"):
            if left.name.endswith(".part"):
                shutil.rmtree(left, ignore_errors=True)
        part = Path(tempfile.mkdtemp(prefix=f"{self.engine}-", suffix=".part", dir=self.folder.parent))
        try:
            self.make(part / "made", say)
            (part / "made").rename(self.folder)
        finally:
            shutil.rmtree(part, ignore_errors=True)


NO_COMPILER = f"found no Java compiler (javac); install a JDK of version {OLDEST} or newer"


@dataclass(frozen=True)
class JavaEnvironment(Environment):
    """The classes of a program; `jars` downloads and verifies the jars to compile it with and to run it on."""

    source: Path
    jars: Jars

    @property
    def made_from(self) -> bytes:
        return self.source.read_bytes()

    @property
    def class_path(self) -> list[Path]:
        """The program's classes, then its jars. Raises NotInstalled, JarRefused."""
        return [self.needed(), *self.jars()]

    def make(self, folder: Path, say: Say) -> None:
        """Compile the program into this folder; `say` gets steps and the compiler's output. Raises InstallFailed."""
        compiler = find_compiler()
        if compiler is None:
            raise self.failed(NO_COMPILER)
        say("fetching and checking its jars")
        jars = ":".join(map(str, self.fetched(self.jars)))
        say("compiling")
        command = [compiler, "--release", str(OLDEST), "-cp", jars, "-d", str(folder), str(self.source)]
        ran = subprocess.run(command, capture_output=True, text=True, errors="replace", env=for_program())
        lines = (ran.stderr + ran.stdout).splitlines()
        for line in lines:
            say(line)
        if ran.returncode:
            raise self.failed(lines[0] if lines else f"javac ended with {ran.returncode}")


def find_compiler() -> str | None:
    """Return the javac beside the lab's Java, else the one on PATH, if there is one."""
    return shutil.which("javac", path=str(find_java().home / "bin")) or shutil.which("javac")


LOCKS = Path(__file__).with_name("locks")


@dataclass(frozen=True)
class PythonEnvironment(Environment):
    """A virtual environment with what `locks/ENGINE.lock` names."""

    newest_python: tuple[int, int]  # that its packages support
    jars: Jars = tuple  # downloads and verifies the jars that it also needs; by default none

    @property
    def lock(self) -> Path:
        return LOCKS / f"{self.engine}.lock"

    @property
    def made_from(self) -> bytes:
        return self.lock.read_bytes()

    @property
    def python(self) -> Path:
        """The interpreter with the engine's packages. Raises NotInstalled."""
        return self.needed() / "bin" / "python"

    def install(self, say: Say = lambda line: None) -> None:
        """Download its jars, and make the environment unless it is there. Raises InstallFailed, JarRefused."""
        self.fetched(self.jars)
        super().install(say)

    def make(self, folder: Path, say: Say) -> None:
        """Make it as this folder; `say` gets what uv prints. Raises InstallFailed."""
        self._uv(say, "venv", "--relocatable", "--python", self._wanted_python(), str(folder))
        lock = ["--build-constraints", str(self.lock), "--requirements", str(self.lock)]
        python = str(folder / "bin" / "python")
        self._uv(say, "pip", "install", "--require-hashes", "--link-mode", "hardlink", "--python", python, *lock)

    def _wanted_python(self) -> str:
        """Return the lab's own Python if the engine's packages support it, else the versions that uv may use."""
        if sys.version_info[:2] <= self.newest_python:
            return sys.executable
        return f">=3.11,<3.{self.newest_python[1] + 1}"

    def _uv(self, say: Say, *arguments: str) -> None:
        from uv import find_uv_bin

        command = [find_uv_bin(), *arguments, "--no-python-downloads", "--no-config"]
        environment = {name: value for name, value in for_program().items() if name != "VIRTUAL_ENV"}
        lines = []
        with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, errors="replace", env=environment) as uv:
            try:
                for line in uv.stderr or ():
                    lines.append(line.strip())
                    say(line.rstrip())
            except BaseException:
                uv.kill()
                raise
        if uv.returncode:
            raise self.failed(_in_one_line(lines))


def _in_one_line(lines: list[str]) -> str:
    """Return uv's failure in one line: where it stopped, and the innermost cause."""
    said = [line.strip("×│╰├─▶ ") for line in lines if line]
    causes = [
        line for line in said if line.startswith(("error:", "Caused by:", "No solution", "Failed to", "No interpreter"))
    ]
    told = causes or said[-1:] or ["uv said nothing"]
    return " / ".join(dict.fromkeys([told[0], told[-1]]))


FLINK = PythonEnvironment("flink", fetched_mb=420, kept_mb=710, newest_python=(3, 12), jars=flink_connector_jars)
QUIX = PythonEnvironment("quix", fetched_mb=20, kept_mb=80, newest_python=(3, 14))
STREAMS = JavaEnvironment(
    "streams", fetched_mb=90, kept_mb=90, source=Path(__file__).with_name("IpCount.java"), jars=streams_jars
)
ENVIRONMENTS: dict[str, Environment] = {each.engine: each for each in (FLINK, QUIX, STREAMS)}


def environment_of(engine: str) -> Environment:
    """Return the environment of an engine. Raises ValueError if it needs none, or if there is no such engine."""
    if engine not in ENVIRONMENTS:
        raise ValueError(f"{engine!r} has no environment of its own; these have one: {', '.join(ENVIRONMENTS)}")
    return ENVIRONMENTS[engine]
