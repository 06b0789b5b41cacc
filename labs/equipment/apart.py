"""Calls a lesson's function in a process of its own, which then does nothing until it is killed.

    job = Apart(prepare, "job-1", rows)
    job.result        what prepare("job-1", rows) returned
    job.kill()        SIGKILL

Guarantee: the process ends with this one, whatever happens. Limitations: what the function uses of the notebook must
be plain values, functions and modules; so must its arguments and its result.
"""

from __future__ import annotations

import pickle
import shutil
import signal
import sys
import tempfile
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pyspark import cloudpickle

from labs.equipment.child_process import ChildProcess, for_python
from labs.equipment.waiting import eventually


class ApartFailed(RuntimeError):
    """The function raised, or its process ended before it returned."""


class Apart:
    """A process that calls `function(*arguments)`. The constructor waits until the function has returned.

    Raises ApartFailed; TimeoutError after 60 s.
    """

    def __init__(self, function: Callable[..., Any], *arguments: Any):
        self._directory = Path(tempfile.mkdtemp(prefix="labs-apart-"))
        (self._directory / "call").write_bytes(cloudpickle.dumps((function, arguments)))
        command = [sys.executable, "-m", "labs.equipment.apart", str(self._directory)]
        # TMPDIR: a killed Spark leaves its temporary files in the directory, which `kill` deletes. PYTHONSAFEPATH is
        # empty, because the function may be in a module beside the notebook.
        environment = for_python(TMPDIR=str(self._directory), PYTHONSAFEPATH="")
        self._process = ChildProcess(command, self._directory / "output", leftovers=self._directory, env=environment)
        answer = self._directory / "answer"
        _alive.add(self)
        try:
            eventually(lambda: answer.exists() or self._process.pid is None, timeout=60)
            if not answer.exists():
                raise ApartFailed(f"its process ended before it returned. {self._process.last_lines()}")
            returned, self.result = pickle.loads(answer.read_bytes())
            if not returned:
                raise ApartFailed(self.result)
        except BaseException:
            self.kill()
            raise

    def kill(self) -> str:
        """SIGKILL the process, and return the name of the signal that ended it."""
        self._process.kill()
        _alive.discard(self)
        code = self._process.exit_code
        shutil.rmtree(self._directory, ignore_errors=True)
        return signal.Signals(-code).name if code is not None and code < 0 else f"exit code {code}"


_alive: set[Apart] = set()


def kill_all_apart() -> None:
    """Kill the processes that still run, because the code that should have killed them was interrupted."""
    for each in list(_alive):
        each.kill()


def main(directory: Path) -> None:
    """Call the function, write its answer to a file, and wait to be killed."""
    function, arguments = pickle.loads((directory / "call").read_bytes())
    try:
        answer = True, function(*arguments)
    except Exception:
        answer = False, traceback.format_exc()
    draft = directory / "draft"
    draft.write_bytes(cloudpickle.dumps(answer))
    draft.rename(directory / "answer")
    signal.pause()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
