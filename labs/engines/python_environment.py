"""Environments with a Python of their own, since an engine's packages cannot live beside the lab's.

Guarantee: made by uv from a lock with all sums. No Python is downloaded, and nothing is built from source other than
with what the lock names.
"""

from __future__ import annotations

import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from labs.engines.environment import Environment, Jars, Say
from labs.equipment.child_environment import for_program

LOCKS = Path(__file__).with_name("locks")


@dataclass(frozen=True)
class PythonEnvironment(Environment):
    """A virtual environment with what `locks/ENGINE.lock` names."""

    newest_python: tuple[int, int]  # that its packages are made for
    jars: Jars = tuple  # that it takes besides: none

    @property
    def lock(self) -> Path:
        return LOCKS / f"{self.engine}.lock"

    @property
    def made_from(self) -> bytes:
        return self.lock.read_bytes()

    @property
    def python(self) -> Path:
        """The interpreter that knows the engine's packages. Raises NotInstalled."""
        return self.needed() / "bin" / "python"

    def install(self, say: Say = lambda line: None) -> None:
        """Fetch its jars, and make the environment unless it is there. Raises InstallFailed, JarRefused."""
        self.fetched(self.jars)
        super().install(say)

    def make(self, folder: Path, say: Say) -> None:
        """Make it as this folder; `say` gets what uv prints. Raises InstallFailed."""
        self._uv(say, "venv", "--relocatable", "--python", self._wanted_python(), str(folder))
        lock = ["--build-constraints", str(self.lock), "--requirements", str(self.lock)]
        python = str(folder / "bin" / "python")
        self._uv(say, "pip", "install", "--require-hashes", "--link-mode", "hardlink", "--python", python, *lock)

    def _wanted_python(self) -> str:
        """Return the lab's own Python if the engine's packages are made for it, else which one uv is to look for."""
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
    """Return what uv says of a failure: where it stopped, and the innermost cause."""
    said = [line.strip("×│╰├─▶ ") for line in lines if line]
    causes = [
        line for line in said if line.startswith(("error:", "Caused by:", "No solution", "Failed to", "No interpreter"))
    ]
    told = causes or said[-1:] or ["uv said nothing"]
    return " / ".join(dict.fromkeys([told[0], told[-1]]))
