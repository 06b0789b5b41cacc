"""Runs a student's file: `python -m labs.exercises.checker.student DIRECTORY`.

It takes up one file of JSON after the other as they come to be there, spec-1.json, spec-2.json, …, so that what took
long to start, a Spark, serves many runs. Each has: directory (to work in), file (the source), shown_as, journal, began,
function, entry ("module:function" that calls it with its tools), tools (what the entry needs to know) and crash (point
and nth, or null). How the run ended is the last event of the journal; a process that ends without one was killed, or
has left by a back door.
"""

from __future__ import annotations

import faulthandler
import importlib
import itertools
import json
import linecache
import os
import signal
import sys
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

from labs.equipment.plain_text import first_line
from labs.exercises.checker.crash_points import Crash, CrashPoints
from labs.exercises.checker.journal import NOT_JUDGED, RunJournal
from labs.exercises.checker.student_module import Unusable, find, load


def run(spec: dict[str, Any], journal: RunJournal) -> None:
    """Load the file, call the function, and note how it ended."""
    shown = spec["shown_as"]
    entry, _, name = spec["entry"].partition(":")
    call = getattr(importlib.import_module(entry), name)
    crash = Crash(**spec["crash"]) if spec["crash"] else None
    journal.write("phase", "load")
    try:
        function = find(load(spec["file"], shown), spec["function"])
        journal.write("phase", "tools")
        call(function, spec["tools"], CrashPoints(journal, crash))
    except Unusable as error:
        journal.write("end", str(error), ending=error.kind)
    except SystemExit as error:
        code = first_line(_safely(repr, error.code))
        journal.write("end", f"sys.exit({code}) was called{_where(error, shown)}", ending="exited")
    except SyntaxError as error:
        at = f"line {error.lineno}: " if error.filename == shown else ""
        journal.write("end", f"{at}{error.msg}", ending="syntax error")
    except MemoryError as error:
        journal.write("end", f"MemoryError{_where(error, shown)}", ending="out of memory")
    except BaseException as error:
        where = _where(error, shown)
        ending = "import error" if isinstance(error, ImportError) else "crashed"
        if not where and journal.phase not in ("load", "call"):  # the checker's own tools, before the code was called
            ending = NOT_JUDGED
        journal.write("end", f"{_in_words(error)}{where}", ending=ending, error=type(error).__name__[:100])
    else:
        journal.write("end", "returned", ending="returned")


def _in_words(error: BaseException) -> str:
    """Return an exception in one line: of what Spark made of it, the cause."""
    name = type(error).__name__
    if str(type(error).__module__).startswith(("py4j", "pyspark")):
        from labs.pipeline.query.query_failure import why

        said = _safely(why, error)
    else:
        said = _safely(str, error)
    said = first_line(said)
    return f"{name}: {said}" if said else name


def _safely(describe: Callable[[Any], str], what: object) -> str:
    """Describe what the code made: that may raise, too."""
    try:
        return describe(what)
    except BaseException as error:
        return f"(it cannot be shown: that raises {type(error).__name__})"


def _where(error: BaseException, shown: str) -> str:
    frames = traceback.extract_tb(error.__traceback__)
    lines = [frame.lineno for frame in frames if frame.filename == shown and frame.lineno]
    if not lines:
        return ""
    text = linecache.getline(shown, lines[-1]).strip()
    return f" (line {lines[-1]}: {text})"


def main() -> None:
    for number in itertools.count(1):
        file = Path(sys.argv[1], f"spec-{number}.json")
        while not file.exists():
            time.sleep(0.01)
        spec = json.loads(file.read_text())
        os.chdir(spec["directory"])
        with open(spec["stack"], "w") as stack:
            faulthandler.register(signal.SIGUSR1, stack)  # the checker asks where a run hangs before it kills it
            run(spec, RunJournal(spec["journal"], spec["began"]))
            sys.stdout.flush()
            sys.stderr.flush()
            faulthandler.unregister(signal.SIGUSR1)


if __name__ == "__main__":
    main()
