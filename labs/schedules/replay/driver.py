"""What a replay asks of its drivers, be they processes that run a program or threads in which the real sink works."""

from __future__ import annotations

from typing import NamedTuple, Protocol

DONE = "all batches are done"


class Silent(RuntimeError):
    """A driver said nothing where it should have; the message says what was waited for."""


class Step(NamedTuple):
    """A step that a driver takes: `row` is None where it is not about one record."""

    action: str
    batch: int | None = None
    row: int | None = None

    def __str__(self) -> str:
        if self.action == "end":
            return "none, since all its batches are done"
        return f"{self.action} of batch {self.batch}" + ("" if self.row is None else f", record {self.row}")


class Driver(Protocol):
    """Takes one step at a word. `taking` is the step that it waits for an answer to."""

    name: str
    alive: bool
    asleep: bool
    taking: Step | None

    def peek(self) -> Step:
        """Return its next step, which it does not take yet: Step("end") if there is none. Raises Silent."""
        ...

    def begin(self) -> Step:
        """Let it begin its next step, and return which one that is: Step("end") after the last. Raises Silent."""
        ...

    def answer(self, timeout: float = 60) -> str:
        """Return what came back for the step that it has begun. Raises Silent."""
        ...

    def sleep(self) -> None:
        """Freeze it: it does not know."""
        ...

    def wake(self) -> None: ...

    def kill(self) -> None:
        """End it as a crash does: it sends nothing any more."""
        ...

    def close(self) -> None: ...
