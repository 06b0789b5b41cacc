"""What a student's code raised, in one line: the exception, and the last line of the code that it passed through."""

from __future__ import annotations

import linecache
import traceback
from collections.abc import Callable
from typing import Any

from labs.equipment.plain_text import first_line


def in_words(error: BaseException) -> str:
    """Return an exception in one line; if Spark wrapped it, its cause."""
    name = type(error).__name__
    if str(type(error).__module__).startswith(("py4j", "pyspark")):
        from labs.pipeline.query.query_failure import why

        said = safely(why, error)
    else:
        said = safely(str, error)
    said = first_line(said)
    return f"{name}: {said}" if said else name


def safely(describe: Callable[[Any], str], what: object) -> str:
    """Describe a value of the student's code, whose methods may raise."""
    try:
        return describe(what)
    except BaseException as error:
        return f"(it cannot be shown: that raises {type(error).__name__})"


def where(error: BaseException, file: str) -> str:
    """Return the line of the file that it passed through last, in brackets; empty if it passed through none."""
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if frame.filename == file and frame.lineno]
    if not frames:
        return ""
    return at_line(file, frames[-1].lineno or 0)


def at_line(file: str, line: int) -> str:
    """Return a line with its number, in brackets."""
    return f" (line {line}: {linecache.getline(file, line).strip()})"
