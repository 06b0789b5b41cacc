"""Environments of programs in Java: compiled where a compiler is at hand, from one source file of the lab's.

Guarantee: the jars are the lab's kind, each with its sum. Where it stops: a compiler (`javac`) is part of a JDK, which
the lab does not bring: the Java that it runs on need not have one.
"""

from __future__ import annotations

import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

from labs.engines.environment import Environment, Jars, Say
from labs.equipment.child_environment import for_program
from labs.equipment.java import OLDEST, find_java

NO_COMPILER = f"no Java compiler is at hand; a JDK of version {OLDEST} or newer has one, javac"


@dataclass(frozen=True)
class JavaEnvironment(Environment):
    """The classes of a program; `jars` fetches and verifies what it is compiled with, and runs on."""

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
        """Compile the program into this folder; `say` gets each step and the compiler's words. Raises InstallFailed."""
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
