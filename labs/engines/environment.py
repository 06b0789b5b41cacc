"""The environment of an engine: what it needs and the lab does not have, in a folder of its own in the lab's cache.

Guarantee: a folder with an environment's name is whole. It is made under another name and renamed when all is there,
so what an interruption leaves does not count, and is removed by the next attempt. What it is made from is in its name:
when that changes, it is another folder.
"""

from __future__ import annotations

import abc
import hashlib
import shutil
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from labs.equipment.alone import alone_in
from labs.equipment.jars import JarsNotFetched
from labs.equipment.java import lab_cache

Say = Callable[[str], object]
Jars = Callable[[], tuple[Path, ...]]


class NotInstalled(RuntimeError):
    """The engine has no environment on this machine."""


class InstallFailed(RuntimeError):
    """An environment could not be made; what was there before is as it was."""


@dataclass(frozen=True)
class Environment(abc.ABC):
    """Where what an engine needs is or will be. Sizes are megabytes: what is fetched, and what is kept."""

    engine: str
    fetched_mb: int
    kept_mb: int

    @property
    @abc.abstractmethod
    def made_from(self) -> bytes:
        """What decides what is in it."""

    @abc.abstractmethod
    def make(self, folder: Path, say: Say) -> None:
        """Make it as this folder, which is not there yet. Raises InstallFailed."""

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
        """Delete the environment, and whatever interrupted attempts and older ones have left."""
        for each in self.folder.parent.glob(f"{self.engine}-*"):
            shutil.rmtree(each)

    def install(self, say: Say = lambda line: None) -> None:
        """Make the environment unless it is there; `say` gets what is told meanwhile. Raises InstallFailed."""
        if self.installed:
            return
        with alone_in(self.folder.parent):
            if not self.installed:  # by whom we waited for
                self._make(say)

    def fetched(self, jars: Jars) -> tuple[Path, ...]:
        """Return jars, fetched if need be and verified. Raises InstallFailed, JarRefused."""
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
