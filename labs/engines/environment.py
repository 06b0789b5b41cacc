"""Environments of other engines: made by uv from a hashed lock, each in a folder of its own in the lab's cache.

Guarantee: a folder with an environment's name is whole. It is made under another name and renamed when all is there,
so what an interruption leaves does not count, and is removed by the next attempt. A new lock is a new folder. No
Python is downloaded, and nothing is built from source other than with what the lock names.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from labs.equipment.alone import alone_in
from labs.equipment.java import lab_cache

LOCKS = Path(__file__).with_name("locks")


class NotInstalled(RuntimeError):
    """The engine has no environment on this machine."""


class InstallFailed(RuntimeError):
    """An environment could not be made; what was there before is as it was."""


@dataclass(frozen=True)
class Environment:
    """Where an engine's packages are or will be. Sizes are megabytes: what is fetched, and what is kept."""

    engine: str
    newest_python: tuple[int, int]  # that its packages are made for
    fetched_mb: int
    kept_mb: int

    @staticmethod
    def of(engine: str) -> Environment:
        """Return the environment of an engine. Raises ValueError if it needs none, or there is no such engine."""
        if engine not in ENVIRONMENTS:
            raise ValueError(f"{engine!r} is not installed apart; what is: {', '.join(ENVIRONMENTS)}")
        return ENVIRONMENTS[engine]

    @property
    def lock(self) -> Path:
        return LOCKS / f"{self.engine}.lock"

    @property
    def folder(self) -> Path:
        digest = hashlib.sha256(self.lock.read_bytes()).hexdigest()
        return lab_cache() / "engines" / f"{self.engine}-{digest[:12]}"

    @property
    def installed(self) -> bool:
        return self.folder.exists()

    @property
    def python(self) -> Path:
        """The interpreter that knows the engine's packages. Raises NotInstalled."""
        if not self.installed:
            raise NotInstalled(f"{self.engine} is not installed; run: python -m labs engines install {self.engine}")
        return self.folder / "bin" / "python"

    def remove(self) -> None:
        """Delete the environment, and whatever interrupted attempts and older locks have left."""
        for each in self.folder.parent.glob(f"{self.engine}-*"):
            shutil.rmtree(each)

    def install(self, say: Callable[[str], object] = lambda line: None) -> None:
        """Make the environment unless it is there; `say` gets what uv prints, line by line. Raises InstallFailed."""
        if self.installed:
            return
        with alone_in(self.folder.parent):
            if not self.installed:  # by whom we waited for
                self._make(say)

    def _make(self, say: Callable[[str], object]) -> None:
        for left in self.folder.parent.glob(f"{self.engine}-*"):
            if left.name.endswith(".part"):
                shutil.rmtree(left, ignore_errors=True)
        part = Path(tempfile.mkdtemp(prefix=f"{self.engine}-", suffix=".part", dir=self.folder.parent))
        try:
            self._uv(say, "venv", "--relocatable", "--python", self._wanted_python(), str(part / "made"))
            lock = ["--build-constraints", str(self.lock), "--requirements", str(self.lock)]
            python = str(part / "made" / "bin" / "python")
            self._uv(say, "pip", "install", "--require-hashes", "--link-mode", "hardlink", "--python", python, *lock)
            (part / "made").rename(self.folder)
        finally:
            shutil.rmtree(part, ignore_errors=True)

    def _wanted_python(self) -> str:
        """Return the lab's own Python if the engine's packages are made for it, else which one uv is to look for."""
        if sys.version_info[:2] <= self.newest_python:
            return sys.executable
        return f">=3.11,<3.{self.newest_python[1] + 1}"

    def _uv(self, say: Callable[[str], object], *arguments: str) -> None:
        from uv import find_uv_bin

        command = [find_uv_bin(), *arguments, "--no-python-downloads", "--no-config"]
        environment = {name: value for name, value in os.environ.items() if name != "VIRTUAL_ENV"}
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
            raise InstallFailed(f"{self.engine} was not installed, and nothing was changed: {_in_one_line(lines)}")


def _in_one_line(lines: list[str]) -> str:
    """Return what uv says of a failure: where it stopped, and the innermost cause."""
    said = [line.strip("×│╰├─▶ ") for line in lines if line]
    causes = [
        line for line in said if line.startswith(("error:", "Caused by:", "No solution", "Failed to", "No interpreter"))
    ]
    told = causes or said[-1:] or ["uv said nothing"]
    return " / ".join(dict.fromkeys([told[0], told[-1]]))


ENVIRONMENTS = {
    "flink": Environment("flink", newest_python=(3, 12), fetched_mb=420, kept_mb=710),
    "quix": Environment("quix", newest_python=(3, 14), fetched_mb=20, kept_mb=80),
}
