"""The journal of a run lies where the student's code can reach it: one that was damaged is no evidence of anything."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time

import pytest

from labs.exercises.checker.crash_points import LONGEST_EVENT, NOT_WRITTEN, RunJournal, TornJournal, read_journal


@pytest.fixture
def path(tmp_path):
    journal = RunJournal(tmp_path / "journal", time.time())
    journal.write("phase", "load")
    journal.write("end", "returned", ending="returned")
    return tmp_path / "journal"


def test_what_was_written_is_read_again_less_a_line_that_is_not_whole_yet(path):
    with path.open("ab") as file:
        file.write(b'{"when": 1.0, "kind"')
    assert [event["kind"] for event in read_journal(path)] == ["phase", "end"]
    assert read_journal(path.with_name("none")) == []


DAMAGE = {
    "torn": b'{"when": 1.0, "ki',
    "half a line and a whole one": b'{"when": 1{"when": 1.0, "kind": "phase", "what": "call"}',
    "not UTF-8": b"\xff\xfe\x00",
    "empty line": b"",
    "another program's": b'{"level": "info"}',
    "a list": b"[]",
    "a number": b"12",
    "no end that there is": b'{"when": 1.0, "kind": "end", "what": "x", "ending": "passed"}',
    "an end without its ending": b'{"when": 1.0, "kind": "end", "what": "x"}',
    "a kind of yesterday's": b'{"when": 1.0, "kind": "reached", "what": "x"}',
    "no text": b'{"when": 1.0, "kind": "call", "what": 7}',
    "no time": b'{"when": "now", "kind": "call", "what": "x"}',
    "too deep": b"[" * 100_000,
}


@pytest.mark.parametrize("line", DAMAGE.values(), ids=DAMAGE)
def test_line_that_no_run_writes_is_named(path, line):
    path.write_bytes(path.read_bytes() + line + b"\n" + json.dumps({"when": 2.0, "kind": "call", "what": "x"}).encode())
    with pytest.raises(TornJournal, match=r"^line 3 of the journal of the run is no event: "):
        read_journal(path)


def test_journal_that_is_a_directory_is_said(path):
    path.unlink()
    path.mkdir()
    with pytest.raises(TornJournal, match="cannot be read: Is a directory"):
        read_journal(path)


def test_what_an_event_says_is_cut(path):
    RunJournal(path, 0.0).write("call", "x" * 10_000_000)
    assert len(read_journal(path)[-1]["what"]) == LONGEST_EVENT


@pytest.mark.bench
def test_run_that_cannot_write_its_journal_any_more_ends_at_once(tmp_path):
    program = f"""
import os, resource, signal
from labs.exercises.checker.crash_points import RunJournal
journal = RunJournal({str(tmp_path / "journal")!r}, 0.0)
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (100, 100))  # the disk is full in the middle of the second event
journal.write("call", "one")
journal.write("call", "two" * 20)
"""
    run = subprocess.run([sys.executable, "-c", program], env={**os.environ, "PYTHONPATH": "."})
    assert run.returncode == NOT_WRITTEN
    assert [event["what"] for event in read_journal(tmp_path / "journal")] == ["one"]
