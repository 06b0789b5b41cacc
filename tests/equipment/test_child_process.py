"""What a child process guarantees: it and all that it started end with its parent, paused or not."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from labs.equipment.child_process import ChildProcess, ChildReaper, last_lines
from labs.equipment.waiting import eventually
from tests.processes import next_line, runs

ROOT = Path(__file__).parents[2]
# Starts a child of its own, says its process id, and waits.
FAMILY = "import subprocess, signal; print(subprocess.Popen(['sleep', '600']).pid, flush=True); signal.pause()"
PR_SET_CHILD_SUBREAPER = 36  # of <linux/prctl.h>


@pytest.fixture
def family(tmp_path):
    """A process with a child of its own: (the process, the child's id)."""
    process = ChildProcess([sys.executable, "-c", FAMILY], tmp_path / "log")
    child = int(eventually(process.output, timeout=30))
    yield process, child
    process.kill()


def test_kill_ends_what_it_started_too(family):
    process, child = family
    process.kill()
    assert process.exit_code == -signal.SIGKILL
    assert not runs(child)


def test_an_interrupt_while_it_starts_leaves_nothing_behind(tmp_path, monkeypatch):
    started, start = [], ChildReaper.start

    def interrupted_start(*arguments, **options):
        started.append(start(*arguments, **options))
        signal.raise_signal(signal.SIGINT)
        return started[0]

    monkeypatch.setattr(ChildReaper, "start", interrupted_start)
    handler = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with pytest.raises(KeyboardInterrupt):
            ChildProcess(["sleep", "600"], tmp_path / "log")
    finally:
        signal.signal(signal.SIGINT, handler)
    assert started[0].poll() == -signal.SIGKILL


def test_who_is_interrupted_while_waiting_for_its_end_leaves_nothing_behind(tmp_path, monkeypatch):
    process = ChildProcess(["sleep", "600"], tmp_path / "log")

    def interrupted_wait(timeout=None):
        raise KeyboardInterrupt

    monkeypatch.setattr(process, "wait", interrupted_wait)
    with pytest.raises(KeyboardInterrupt):
        process.finish()
    assert process.exit_code == -signal.SIGKILL


def test_a_pause_freezes_all_of_it_and_it_can_be_killed_then(family):
    process, child = family
    process.pause()
    assert process.paused
    eventually(lambda: psutil.Process(child).status() == psutil.STATUS_STOPPED)
    process.kill()
    assert not runs(child)


@pytest.mark.parametrize("paused", [False, True])
def test_stop_lets_it_end_in_its_own_time(tmp_path, paused):
    tidy = (
        "import signal, sys; signal.signal(signal.SIGTERM, lambda *_: sys.exit('tidied up')); print('up', flush=True)"
    )
    process = ChildProcess([sys.executable, "-c", f"{tidy}; signal.pause()"], tmp_path / "log")
    eventually(lambda: process.output().endswith("\n"))
    if paused:
        process.pause()
    process.stop()
    assert (process.exit_code, process.last_line()) == (1, "tidied up")


def test_stop_kills_what_does_not_end(tmp_path):
    deaf = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('up', flush=True); signal.pause()"
    process = ChildProcess([sys.executable, "-c", deaf], tmp_path / "log")
    eventually(lambda: process.output().endswith("\n"))
    process.stop(patience=0.1)
    assert process.exit_code == -signal.SIGKILL


def test_what_outlives_the_process_is_still_killed(family):
    process, child = family
    os.kill(process.pid, signal.SIGKILL)
    eventually(lambda: process.pid is None)
    assert process.has_group
    process.kill()
    assert not runs(child)


@pytest.mark.long
@pytest.mark.skipif(sys.platform != "linux", reason="only Linux lets a process inherit orphans as an init does")
def test_a_kill_does_not_wait_for_an_init_that_never_asks_how_an_orphan_ended(tmp_path):
    program = f"""
import ctypes, sys
from pathlib import Path
import psutil
from labs.equipment.child_process import ChildProcess
from labs.equipment.waiting import eventually
assert ctypes.CDLL(None).prctl({PR_SET_CHILD_SUBREAPER}, 1) == 0
process = ChildProcess([sys.executable, "-c", {FAMILY!r}], Path({str(tmp_path / "log")!r}))
child = int(eventually(process.output, timeout=30))
process.kill()
print(psutil.Process(child).status(), process.has_group, process.exit_code)
"""
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    ran = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True)
    assert ran.stdout.split() == ["zombie", "False", "-9"], ran.stderr


@pytest.mark.long
def test_a_paused_family_does_not_outlive_a_parent_that_is_killed(tmp_path):
    leftovers = tmp_path / "left overs"
    leftovers.mkdir()
    program = f"""
import sys
from pathlib import Path
from labs.equipment.child_process import ChildProcess
from labs.equipment.waiting import eventually
process = ChildProcess([sys.executable, "-c", {FAMILY!r}], Path({str(tmp_path / "log")!r}), Path({str(leftovers)!r}))
child = eventually(process.output, timeout=30).strip()
process.pause()
print(process.pid, child, flush=True)
input()
"""
    with subprocess.Popen(
        [sys.executable, "-c", program],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as parent:
        pids = [int(pid) for pid in next_line(parent.stdout).split()]
        parent.send_signal(signal.SIGKILL)
    eventually(lambda: not any(map(runs, pids)))
    eventually(lambda: not leftovers.exists())


def test_output_is_that_of_this_process_and_not_of_the_last(tmp_path):
    for word in ("first", "second"):
        process = ChildProcess([sys.executable, "-c", f"print({word!r})"], tmp_path / "log")
        assert process.wait() == 0
        assert process.output() == f"{word}\n"
    assert (tmp_path / "log").read_text() == "first\nsecond\n"


def test_last_lines_leave_out_routine_unless_there_is_nothing_else():
    assert last_lines("12:00 INFO all is well\nWARN no\n\tat some.java") == "  WARN no"
    assert last_lines("12:00 INFO all is well") == "  12:00 INFO all is well"
