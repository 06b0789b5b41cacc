"""Ctrl-C waits where something must not be left half done."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading

import pytest

from labs.commands import generate
from labs.commands.main import INTERRUPTED, main
from labs.equipment.interrupts import ended_as_by_ctrl_c, interrupts_wait

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


@pytest.mark.parametrize(("number", "block"), [(signal.SIGINT, interrupts_wait), (signal.SIGHUP, ended_as_by_ctrl_c)])
def test_a_signal_that_is_ignored_stays_so(number, block):
    handler = signal.signal(number, signal.SIG_IGN)
    try:
        with block():
            signal.raise_signal(number)
    finally:
        signal.signal(number, handler)


@pytest.mark.long
def test_a_lesson_interrupted_while_it_imports_can_import_again():
    run = subprocess.run([sys.executable, "-c", INTERRUPTED_IMPORT], capture_output=True, text=True)
    assert run.stdout.split() == ["interrupted", "imported"], run.stderr


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
@pytest.mark.parametrize("ctrl_c", [signal.default_int_handler, signal.SIG_IGN])
def test_other_signals_end_a_block_as_ctrl_c_does_even_where_that_is_ignored(number, ctrl_c):
    before, handler = signal.signal(number, signal.SIG_DFL), signal.signal(signal.SIGINT, ctrl_c)  # nohup ignores one
    try:
        with pytest.raises(KeyboardInterrupt), ended_as_by_ctrl_c():
            signal.raise_signal(number)
        assert signal.getsignal(number) is signal.SIG_DFL
    finally:
        signal.signal(signal.SIGINT, handler)
        signal.signal(number, before)


def test_other_signals_wait_where_ctrl_c_waits():
    done = []

    def interrupted_block() -> None:
        with ended_as_by_ctrl_c(), interrupts_wait():
            signal.raise_signal(signal.SIGTERM)
            done.append("the rest of it")

    with pytest.raises(KeyboardInterrupt):
        interrupted_block()
    assert done


@pytest.mark.long
def test_every_command_ends_at_a_sigterm_as_at_ctrl_c(monkeypatch, capsys):
    monkeypatch.setattr(generate, "run", lambda arguments: signal.raise_signal(signal.SIGTERM))
    assert main(["generate"]) == INTERRUPTED
    assert capsys.readouterr().err.strip() == "stopped"
