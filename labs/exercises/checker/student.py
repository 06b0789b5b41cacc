"""Runs a student's file: `python -m labs.exercises.checker.student DIRECTORY`.

It waits for the files spec-1.json, spec-2.json, … and carries out each in turn, so that a Spark, which takes long to
start, serves many runs. Each file has: directory (to work in), file (the source), shown_as, journal, stack (the file
for the stack of code that hangs), began, function, entry ("module:function" that calls it with its tools), tools (what
the entry needs to know) and crash (point and nth, or null). The last event of the journal says how the run ended; a
process that leaves no such event was killed, or ended by os._exit.
"""

from __future__ import annotations

import contextlib
import faulthandler
import importlib
import itertools
import json
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

from labs.equipment.plain_text import first_line
from labs.exercises.checker.crash_points import NOT_JUDGED, Crash, CrashPoints, KafkaSilent, RunJournal
from labs.exercises.checker.student_module import Unusable, find, in_words, load, safely, where


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
        code = first_line(safely(repr, error.code))
        journal.write("end", f"sys.exit({code}) was called{where(error, shown)}", ending="exited")
    except MemoryError as error:
        journal.write("end", f"MemoryError{where(error, shown)}", ending="out of memory")
    except BaseException as error:
        at, what = where(error, shown), in_words(error)
        ending = "import error" if isinstance(error, ImportError) else "crashed"
        if isinstance(error, SyntaxError) and error.filename == shown:  # of the file, and not of an eval in it
            ending, at, what = "syntax error", "", f"line {error.lineno}: {error.msg}"
        own_tools = not at and journal.phase not in ("load", "call")  # the checker's, before the code was called
        if own_tools or isinstance(error, KafkaSilent):
            ending = NOT_JUDGED
        journal.write("end", f"{what}{at}", ending=ending, error=type(error).__name__[:100])
    else:
        journal.write("end", "returned", ending="returned")


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
            for stream in (sys.stdout, sys.stderr):
                with contextlib.suppress(ValueError):  # the student's code has closed it
                    stream.flush()
            faulthandler.unregister(signal.SIGUSR1)


if __name__ == "__main__":
    main()
