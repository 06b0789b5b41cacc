"""The progress bars of the command line: on standard error, gone when they are done."""

from __future__ import annotations

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn


def bench_progress(console: Console) -> Progress:
    """Return a rich Progress (a context manager) in the lab's layout."""
    columns = [
        SpinnerColumn(),
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
    ]
    return Progress(*columns, console=console, transient=True)
