"""A function of a lesson's in a process of its own, which then stays as it is until it is killed.

    job = Apart(prepare, "job-1", rows)
    job.result        what prepare("job-1", rows) returned
    job.kill()        the hard way

Guarantee: the process ends with this one, whatever happens. Where it stops: what the function uses of the notebook must
be plain values, functions and modules; arguments and result as well.
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

from labs.equipment.child_environment import for_python
from labs.equipment.child_process import ChildProcess
from labs.equipment.eventually import eventually


class ApartFailed(RuntimeError):
    """The function raised, or its process ended before it returned."""


class Apart:
    """A process that calls `function(*arguments)`. Returns when that has returned; raises ApartFailed if it did not."""

    def __init__(self, function: Callable[..., Any], *arguments: Any):
        self._directory = Path(tempfile.mkdtemp(prefix="labs-apart-"))
        (self._directory / "call").write_bytes(cloudpickle.dumps((function, arguments)))
        command = [sys.executable, "-m", "labs.equipment.apart", str(self._directory)]
        # A killed Spark's temporary files too; and what it is to call may be in a module beside the notebook.
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
    """Kill those that nobody has killed: what is interrupted between a process and its end leaves it to the next."""
    for each in list(_alive):
        each.kill()


def main(directory: Path) -> None:
    """Call what was asked for, leave the answer, and do nothing any more."""
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
