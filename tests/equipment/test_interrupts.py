"""Ctrl-C waits where something must not be left half done."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading

import pytest

from labs.equipment.interrupts import interrupts_wait

# pandas that was interrupted while it imported its parts cannot be imported again in the same process.
INTERRUPTED_IMPORT = """
import os, signal, sys

signal.signal(signal.SIGINT, signal.default_int_handler)

class CtrlC:
    struck = 0
    def find_spec(self, name, path=None, target=None):
        if name == "pandas.core.api" and not self.struck:
            self.struck += 1
            os.kill(os.getpid(), signal.SIGINT)

sys.meta_path.insert(0, CtrlC())
try:
    import labs.lesson
except KeyboardInterrupt:
    print("interrupted")
import labs.lesson
print("imported")
"""


def test_the_block_is_finished_and_then_the_interrupt_comes():
    handler, done = signal.getsignal(signal.SIGINT), []

    def interrupted_block() -> None:
        with interrupts_wait() as interrupted:
            assert not interrupted.is_set()
            signal.raise_signal(signal.SIGINT)
            assert interrupted.is_set()
            done.append("all of it")

    with pytest.raises(KeyboardInterrupt):
        interrupted_block()
    assert done == ["all of it"]
    assert signal.getsignal(signal.SIGINT) is handler


def test_an_error_of_the_block_goes_first():
    def failing_block() -> None:
        with interrupts_wait():
            signal.raise_signal(signal.SIGINT)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        failing_block()


def test_without_an_interrupt_nothing_comes_and_in_a_thread_nothing_is_touched():
    with interrupts_wait():
        pass
    handler, seen = signal.getsignal(signal.SIGINT), []

    def in_a_thread() -> None:
        with interrupts_wait():
            seen.append(signal.getsignal(signal.SIGINT))

    thread = threading.Thread(target=in_a_thread)
    thread.start()
    thread.join()
    assert seen == [handler]


def test_an_interrupt_that_is_ignored_stays_so():
    handler = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with interrupts_wait():
            signal.raise_signal(signal.SIGINT)
    finally:
        signal.signal(signal.SIGINT, handler)


def test_a_lesson_interrupted_while_it_imports_can_import_again():
    run = subprocess.run([sys.executable, "-c", INTERRUPTED_IMPORT], capture_output=True, text=True)
    assert run.stdout.split() == ["interrupted", "imported"], run.stderr
