"""However a room ends, nothing of it is left: no process, no thread, no file."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from labs.equipment.waiting import eventually
from labs.room.room import Room, RoomError

pytestmark = pytest.mark.long

ROOT = Path(__file__).parents[2]

PROGRAM = """
import sys, tempfile, threading, os
import labs.room.room, labs.room.session

def broken(*_):
    raise RuntimeError("no act today")

if sys.argv[1] == "broken":
    labs.room.session.Act = broken
before = threading.active_count()
print("opening", flush=True)
try:
    room = labs.room.room.Room()
except RuntimeError as error:
    print(error)
else:
    room.do("start-traffic").result()
    if sys.argv[1] == "close":
        room.close()
        room.close()
        assert room.do("finish").result() == "the room is closed"
if sys.argv[1] in ("close", "broken"):
    print(threading.active_count() - before, "threads,", len(os.listdir(tempfile.gettempdir())), "files")
print("open", flush=True)
sys.stdin.read()
"""


def opened(directory, how):
    """Start a program that opens a room and waits; all its temporary files are in the directory."""
    return subprocess.Popen(
        [sys.executable, "-c", PROGRAM, how],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "TMPDIR": str(directory), "PYTHONPATH": str(ROOT)},
    )


def read_until(program, line):
    """Return the lines that the program printed up to this one."""
    lines = []
    while (said := program.stdout.readline()) and said.strip() != line:
        lines.append(said.strip())
    return lines


def assert_nothing_left(children, directory):
    eventually(lambda: not [each for each in children if each.is_running() and each.status() != "zombie"], 20)
    eventually(lambda: not os.listdir(directory), 20)


@pytest.mark.parametrize("how", ["exit", "SIGKILL", "close", "broken"])
def test_nothing_is_left_of_a_room(tmp_path, how):
    with opened(tmp_path, how) as program:
        said = read_until(program, "open")
        children = psutil.Process(program.pid).children(recursive=True)
        if how in ("close", "broken"):
            assert said[-1] == "0 threads, 0 files"
            assert not children
        else:
            assert len([each for each in children if each.name() == "java" or "python" in each.name()]) >= 2
        if how == "SIGKILL":
            program.kill()
        program.stdin.close()
        program.wait(60)
        assert_nothing_left(children, tmp_path)


def test_nothing_is_left_of_a_room_that_was_interrupted_while_it_opened(tmp_path):
    with opened(tmp_path, "exit") as program:
        read_until(program, "opening")
        eventually(lambda: [each for each in tmp_path.glob("labs-room-*/kafka") if each.is_dir()])
        children = psutil.Process(program.pid).children(recursive=True)
        assert children
        program.send_signal(signal.SIGINT)
        assert program.wait(60) != 0
        assert_nothing_left(children, tmp_path)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"stage": "exactly twice"}, "no stage is called 'exactly twice'"),
        ({"nodes": 0}, "nodes is 0; expected 1 to 5"),
        ({"executors": 9}, "executors is 9; expected 0 to 4"),
        ({"rate": -1}, "a rate of -1"),
    ],
)
def test_what_cannot_be_opened_is_refused_in_one_line(options, said):
    with pytest.raises(RoomError, match=said):
        Room(**options)


def test_somebody_elses_kafka_is_not_struck(monkeypatch):
    monkeypatch.setenv("KAFKA_BOOTSTRAP_SERVERS", "127.0.0.1:1")
    with pytest.raises(RoomError, match="the room strikes only its own Kafka; unset the variable"):
        Room()
