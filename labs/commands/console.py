"""What a command shows while it works, on standard error: bars that vanish, or plain lines where there is no terminal.

Text from outside (names of logs, addresses, messages) is shown as it is: the consoles here know neither rich's
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
    TaskID,
    TextColumn,
    TimeElapsedColumn,
)
from rich.table import Column

EVERY_SECONDS = 5  # a line, if there is news
EVERY_SHARE = 0.1
NO_WIDTH = 1_000  # of a file or a pipe
ROOM_FOR_BAR = 44  # columns that are not the description's
_BLANKS = re.compile(r" +$", re.MULTILINE)


def plain_console(stderr: bool = False) -> Console:
    """Return a console that prints text as it is, and neither folds nor pads it where there is no terminal to fit."""
    console = Console(stderr=stderr, markup=False, emoji=False, highlight=False)
    if not console.is_terminal:
        console.width = NO_WIDTH
        console.file = cast(IO[str], _NotPadded(console.file))
    return console


class _NotPadded:
    """A file without the blanks with which rich fills lines up to the width of a terminal."""

    def __init__(self, file: IO[str]):
        self._file = file

    def write(self, text: str) -> int:
        return self._file.write(_BLANKS.sub("", text))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)


class Bars:
    """A bar for each task, erased at the end."""

    def __init__(self, console: Console):
        # The names give way before the numbers do.
        names = Column(no_wrap=True, overflow="ellipsis", max_width=max(16, console.width - ROOM_FOR_BAR))
        self._progress = Progress(
            SpinnerColumn(),
            TextColumn("{task.description}", markup=False, table_column=names),
            BarColumn(bar_width=16),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            console=console,
            transient=True,
        )
        self._tasks: dict[str, TaskID] = {}
        self._progress.start()

    def show(self, task: str, done: int, total: int | None = None, detail: str = "") -> None:
        """Say how many steps of a task are done, of how many if that is known, and what is going on."""
        if task not in self._tasks:
            self._tasks[task] = self._progress.add_task(task, total=total)
        self._progress.update(self._tasks[task], completed=done, total=total, description=detail or task)

    def close(self) -> None:
        """Erase the bars."""
        self._progress.stop()


class Lines:
    """A line when a task begins and ends, at each tenth of it, and every few seconds if there is news."""

    def __init__(self, console: Console, now: Callable[[], float] = time.monotonic):
        self._console, self._now = console, now
        self._told: dict[str, tuple[int, float]] = {}  # task: what was done when it was last told, and the time

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
        """Nothing is to be erased."""


@contextmanager
def bench_progress(console: Console) -> Iterator[Bars | Lines]:
    """Yield what shows the progress of tasks on the console."""
    progress = Bars(console) if console.is_terminal else Lines(console)
    try:
        yield progress
    finally:
        progress.close()
