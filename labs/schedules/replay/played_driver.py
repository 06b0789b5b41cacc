"""A driver of a replay, seen from the bench: a process that takes one step at a word, and can be struck at any time."""

from __future__ import annotations

import json
import shutil
import socket
import sys
import tempfile
from pathlib import Path
from typing import Any

from labs.equipment.child_environment import for_python
from labs.equipment.child_process import ChildProcess
from labs.schedules.replay.driver import Silent, Step

START = 60.0  # seconds: a slow machine starts Python and loads a library


class PlayedDriver:
    """`program` is a module that can be run (`stepwise.serve`), and `settings` are what it takes."""

    def __init__(self, name: str, settings: dict[str, Any], program: str = "labs.schedules.replay.program"):
        self.name = name
        self.alive, self.asleep = True, False
        self.taking: Step | None = None  # a step that has no answer yet
        ours, theirs = socket.socketpair()
        directory = Path(tempfile.mkdtemp(prefix="labs-driver-"))
        pipe = theirs.fileno()
        command = [sys.executable, "-m", program, str(pipe), json.dumps(settings)]
        self._process = ChildProcess(
            command,
            directory / "output.log",
            leftovers=directory,
            pass_fds=(pipe,),
            env=for_python(),
        )
        theirs.close()
        self._socket, self._answers = ours, ours.makefile("r", encoding="utf-8")
        self._directory = directory

    def peek(self) -> Step:
        """Return the driver's next step, which it does not take yet; `end` if there is none. Raises Silent."""
        self._socket.sendall(b"peek\n")
        said = self._hear(START)
        return Step(said["action"], said.get("batch"), said.get("row"))

    def begin(self) -> Step:
        """Let the driver begin its next step, and return which one that is. Raises Silent."""
        assert self.alive
        assert not self.asleep
        assert not self.taking
        self._socket.sendall(b"next\n")
        said = self._hear(START)
        self.taking = Step(said["action"], said.get("batch"), said.get("row"))
        if said.get("ended"):
            self.alive, self.taking = False, None
            return Step("end")
        return self.taking

    def answer(self, timeout: float = 60) -> str:
        """Return what came back for the step that the driver has begun. Raises Silent."""
        said = self._hear(timeout)
        self.taking = None
        if said.get("ended"):
            self.kill()
        return said["answer"]

    def sleep(self) -> None:
        """SIGSTOP: the driver is frozen and does not know it."""
        self.asleep = True
        self._process.pause()

    def wake(self) -> None:
        """SIGCONT."""
        self._process.resume()
        self.asleep = False

    def kill(self) -> None:
        """SIGKILL, as in a crash."""
        self.alive, self.taking = False, None
        self._process.kill()

    def close(self) -> None:
        self.kill()
        self._answers.close()
        self._socket.close()
        shutil.rmtree(self._directory, ignore_errors=True)

    def _hear(self, timeout: float) -> dict[str, Any]:
        self._socket.settimeout(timeout)
        try:
            line = self._answers.readline()
        except TimeoutError:
            raise Silent(f"{self.name} gave no answer within {timeout:g} s") from None
        except OSError:
            line = ""
        if not line:
            raise Silent(f"{self.name} has ended by itself.\n{self._process.last_lines()}")
        return json.loads(line)
