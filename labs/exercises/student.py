"""Runs a student's file: `python -m labs.exercises.student SPEC`, where SPEC is a file of JSON.

SPEC has: file (the source), shown_as, journal, began, function, entry ("module:function" that calls it with its
tools), tools (what the entry needs to know) and crash (point and nth, or null). How the run ended is the last
event of the journal; a process that ends without one was killed, or has left by a back door.
"""

from __future__ import annotations

import faulthandler
import importlib
import json
import linecache
import signal
import sys
import traceback
from pathlib import Path
from typing import Any

from labs.exercises.crash_points import Crash, CrashPoints
from labs.exercises.journal import Journal
from labs.exercises.student_module import Unusable, find, load


def run(spec: dict[str, Any], journal: Journal) -> None:
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
        journal.write("end", f"sys.exit({error.code!r}) was called{_where(error, shown)}", ending="exited")
    except SyntaxError as error:
        at = f"line {error.lineno}: " if error.filename == shown else ""
        journal.write("end", f"{at}{error.msg}", ending="syntax error")
    except MemoryError as error:
        journal.write("end", f"MemoryError{_where(error, shown)}", ending="out of memory")
    except BaseException as error:
        told = f"{type(error).__name__}: {error}{_where(error, shown)}"
        journal.write("end", told, ending="import error" if isinstance(error, ImportError) else "crashed")
    else:
        journal.write("end", "returned", ending="returned")


def _where(error: BaseException, shown: str) -> str:
    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == shown]
    if not lines:
        return ""
    text = linecache.getline(shown, lines[-1]).strip()
    return f" (line {lines[-1]}: {text})"


def main() -> None:
    spec = json.loads(Path(sys.argv[1]).read_text())
    stack = open(spec["stack"], "w")  # noqa: SIM115  open for as long as the process lives
    faulthandler.register(signal.SIGUSR1, stack)  # the checker asks where a run hangs before it kills it
    run(spec, Journal(spec["journal"], spec["began"]))
    sys.stdout.flush()


if __name__ == "__main__":
    main()
