"""A driver of a replay, as a player sees it: it takes one step when it is told to, and can crash or sleep at any time.

`PlayedDriver` is a process that runs a program. `SinkDriver` is a thread in which the real sink works. Player and
driver talk over a pair of sockets: the player sends a word, and the driver (`gates`) answers with lines of JSON.

    next    the driver says which step it takes, {"action": "row", "batch": 0, "row": 1}, takes the step, and says
            what came back, {"answer": "ok"}; or it says that it has ended, {"ended": true}
    peek    the driver says which step comes next, and does not take it
    wait    the driver waits until it has the epoch that it has asked for ahead, and says what came back
"""

from __future__ import annotations

import json
import shutil
import socket
import sys
import tempfile
from pathlib import Path
from typing import Any, NamedTuple

from labs.equipment.child_process import ChildProcess, for_python

DONE = "all batches are done"
START = 60.0  # seconds: a slow machine starts Python and loads a library


class Silent(RuntimeError):
    """A driver did not answer. The message says which, and for how long or why."""


class Step(NamedTuple):
    """A step of a driver. `row` is None if the step is not about one record."""

    action: str
    batch: int | None = None
    row: int | None = None

    def __str__(self) -> str:
        if self.action == "end":
            return "none, since all its batches are done"
        batch = "" if self.batch is None else f" of batch {self.batch}"
        return f"{self.action}{batch}" + ("" if self.row is None else f", record {self.row}")


class Driver:
    """Takes one step when the player says so. `taking` is the step whose answer it waits for.

    `theirs` is the program's end of the sockets.
    """

    def __init__(self, name: str):
        self.name, self.alive, self.asleep = name, True, False
        self.taking: Step | None = None
        self._ahead = False  # whether its last step was a request whose answer it does not wait for
        self._socket, self.theirs = socket.socketpair()
        self._lines = self._socket.makefile("r", encoding="utf-8")

    def peek(self) -> Step:
        """Return its next step, which it does not take yet. Raises Silent.

        `end` if there is none, and `wait` if the driver waits for an epoch that it has asked for ahead.
        """
        said = self._ask("peek", START)
        return Step("wait") if said.get("waits") else Step(said["action"], said.get("batch"), said.get("row"))

    def begin(self) -> Step:
        """Let it begin its next step, and return that step: Step("end") after the last one. Raises Silent."""
        assert self.alive
        assert not self.asleep
        assert not self.taking
        said = self._ask("next", START)
        if said.get("ended"):
            self.alive = False
            return Step("end")
        step, self._ahead = Step(said["action"], said.get("batch"), said.get("row")), bool(said.get("ahead"))
        self.taking = None if self._ahead else step
        return step

    def answer(self, timeout: float = 60) -> str:
        """Return what came back for the step that it has begun. Raises Silent."""
        said = self._ask("wait", timeout) if self._ahead else self._hear(timeout)
        self.taking, self._ahead = None, False
        if said.get("ended"):
            self.kill()
        return said["answer"]

    def sleep(self) -> None:
        """Freeze it. It does not notice."""
        self.asleep = True

    def wake(self) -> None:
        self.asleep = False

    def kill(self) -> None:
        """End it as a crash does: it sends no more requests."""
        self.alive, self.taking = False, None

    def close(self) -> None:
        self.kill()
        self._lines.close()
        self._socket.close()

    def ended_by_itself(self) -> str:
        """Return what is known about a driver that has closed its socket."""
        return f"{self.name} has ended by itself."

    def _ask(self, word: str, timeout: float) -> dict[str, Any]:
        try:
            self._socket.sendall(f"{word}\n".encode())
        except OSError:
            raise Silent(self.ended_by_itself()) from None
        return self._hear(timeout)

    def _hear(self, timeout: float) -> dict[str, Any]:
        self._socket.settimeout(timeout)
        try:
            line = self._lines.readline()
        except TimeoutError:
            raise Silent(f"{self.name} gave no answer within {timeout:g} s") from None
        except OSError:
            line = ""
        if not line:
            raise Silent(self.ended_by_itself())
        return json.loads(line)


class PlayedDriver(Driver):
    """A process that runs one of `replay.program.PROGRAMS`, which gets `settings`."""

    def __init__(self, name: str, settings: dict[str, Any], program: str = "sink"):
        super().__init__(name)
        self._directory = Path(tempfile.mkdtemp(prefix="labs-driver-"))
        theirs = self.theirs.fileno()
        self._process = ChildProcess(
            [sys.executable, "-m", "labs.schedules.replay.program", program, str(theirs), json.dumps(settings)],
            self._directory / "output.log",
            leftovers=self._directory,
            pass_fds=(theirs,),
            env=for_python(),
        )
        self.theirs.close()

    def sleep(self) -> None:
        """Freeze the process, with SIGSTOP."""
        super().sleep()
        self._process.pause()

    def wake(self) -> None:
        """Wake the process, with SIGCONT."""
        self._process.resume()
        super().wake()

    def kill(self) -> None:
        """Kill the process, with SIGKILL."""
        super().kill()
        self._process.kill()

    def close(self) -> None:
        super().close()
        shutil.rmtree(self._directory, ignore_errors=True)

    def ended_by_itself(self) -> str:
        return f"{super().ended_by_itself()}\n{self._process.last_lines()}"
