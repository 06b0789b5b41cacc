"""An engine's program, run by the Python or the Java of its own environment as a process group that can be killed."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

from labs.equipment.child_environment import for_program
from labs.equipment.child_process import ChildProcess

TEMPORARY = "tmp"


def python_command(python: Path, program: Path, order: dict[str, object]) -> list[str]:
    """Return `python -I program ORDER`: isolated, since none of the lab's packages may get into another environment."""
    return [str(python), "-I", "-u", str(program), json.dumps(order)]


class EngineProcess:
    """Its temporary files, in `directory` below TEMPORARY, go with `close`, and when this process ends."""

    def __init__(self, command: list[str], directory: Path, **variables: str):
        self._temporary = directory / TEMPORARY
        self._temporary.mkdir(parents=True, exist_ok=True)
        environment = for_program(TMPDIR=str(self._temporary), **variables)
        self._process = ChildProcess(
            command, directory / "engine.log", self._temporary, cwd=directory, env=environment, stdin=None
        )

    @property
    def pid(self) -> int:
        """The process id, which is the process group's too."""
        return self._process.group

    @property
    def running(self) -> bool:
        return self._process.pid is not None

    def kill(self) -> None:
        """SIGKILL the whole group, the JVM too, and wait until it is gone."""
        self._process.kill()

    def stop(self) -> None:
        """SIGTERM the whole group, let it end in its own time, and kill what has not within half a minute."""
        self._process.stop()

    def close(self) -> None:
        """Kill it if it still runs, and delete its temporary files: a Flink unpacks 67 MB at each start."""
        self._process.kill()
        shutil.rmtree(self._temporary, ignore_errors=True)

    def last_line(self) -> str:
        """Return the last line that it has printed."""
        return self._process.last_line()
