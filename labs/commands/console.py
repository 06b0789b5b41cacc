"""The progress of a command, on standard error: bars that vanish, or plain lines if there is no terminal.

Text from outside (names of logs, addresses, messages) is printed unchanged: the consoles here interpret neither rich's
`[markup]` nor its `:emoji:` codes.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import IO, Any, cast

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    SpinnerColumn,
    Task,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.table import Column
from rich.text import Text

EVERY_SECONDS = 5  # between two lines
EVERY_SHARE = 0.1
SLOWEST = 600  # seconds: the time left is estimated from the steps of this period
NO_WIDTH = 1_000  # of a file or a pipe
ROOM_FOR_BAR = 58  # columns beside the description
_BLANKS = re.compile(r" +$", re.MULTILINE)


def plain_console(stderr: bool = False) -> Console:
    """Return a console that prints text unchanged, and neither folds nor pads it if there is no terminal."""
    console = Console(stderr=stderr, markup=False, emoji=False, highlight=False)
    if not console.is_terminal:
        console.width = NO_WIDTH
        console.file = cast(IO[str], _NotPadded(console.file))
    return console


def in_colour(audit: object) -> Text:
    """Return the text of an audit with its verdict, and what is duplicated or lost, in the terminal's colours."""
    text = Text(str(audit))
    for verdict, colour in {"valid": "green", "invalid": "red", "unknown": "yellow"}.items():
        text.highlight_regex(rf"(?m)(?<=^audit: ){verdict}\b", f"bold {colour}")
    text.highlight_regex(r"(?m)^  (?:duplicated|lost) +[1-9][\d,]*$", "red")
    return text


class _NotPadded:
    """A file without the blanks with which rich fills lines up to the width of a terminal."""

    def __init__(self, file: IO[str]):
        self._file = file

    def write(self, text: str) -> int:
        return self._file.write(_BLANKS.sub("", text))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)


class Remaining(TimeRemainingColumn):
    """The time that a task will still take, estimated from its steps so far; empty if there are too few."""

    def render(self, task: Task) -> Text:
        """Return it in words."""
        left = task.time_remaining
        return Text("" if task.finished or left is None else f"{int(left) // 60}:{int(left) % 60:02} left")


class Bars:
    """A bar for each task, erased at the end."""

    def __init__(self, console: Console):
        # In a narrow terminal the names are cut, not the numbers.
        names = Column(no_wrap=True, overflow="ellipsis", max_width=max(16, console.width - ROOM_FOR_BAR))
        self._progress = Progress(
            SpinnerColumn(),
            TextColumn("{task.description}", markup=False, table_column=names),
            BarColumn(bar_width=16),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            Remaining(),
            console=console,
            transient=True,
            speed_estimate_period=SLOWEST,
        )
        self._tasks: dict[str, TaskID] = {}
        self._progress.start()

    def show(self, task: str, done: int, total: int | None = None, detail: str = "") -> None:
        """Show how many steps of a task are done, of how many if that is known, and the present step."""
        if task not in self._tasks:
            self._tasks[task] = self._progress.add_task(task, total=total)
        self._progress.update(self._tasks[task], completed=done, total=total, description=detail or task)

    def close(self) -> None:
        """Erase the bars."""
        self._progress.stop()


class Lines:
    """Prints a line when a task begins and ends, at each tenth of it, and every few seconds if it has advanced."""

    def __init__(self, console: Console, now: Callable[[], float] = time.monotonic):
        self._console, self._now = console, now
        self._told: dict[str, tuple[int, float]] = {}  # task: steps done and time at its last line

    def show(self, task: str, done: int, total: int | None = None, detail: str = "") -> None:
        """As in `Bars`."""
        told, when = self._told.get(task, (-1, 0.0))
        if done == told:
            return
        tenth = total is not None and (done == total or done - told >= total * EVERY_SHARE)
        if told < 0 or tenth or self._now() - when >= EVERY_SECONDS:
            self._told[task] = done, self._now()
            of = "" if total is None else f" of {total:,}"
            self._console.print(f"{detail or task}: {done:,}{of}", soft_wrap=True)

    def close(self) -> None:
        """Do nothing: lines stay."""


@contextmanager
def bench_progress(console: Console) -> Iterator[Bars | Lines]:
    """Yield the bars or lines for the progress of tasks on this console."""
    progress = Bars(console) if console.is_terminal else Lines(console)
    try:
        yield progress
    finally:
        progress.close()
