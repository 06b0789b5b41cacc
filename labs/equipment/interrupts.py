"""Delays Ctrl-C during work that must not be left half done, and lets other signals end a program as Ctrl-C does."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Iterator
from types import FrameType


@contextlib.contextmanager
def interrupts_wait() -> Iterator[threading.Event]:
    """Delay a SIGINT: raise KeyboardInterrupt at the end of the block. The yielded event is set when a SIGINT arrives.

    An exception in the block takes precedence. Does nothing outside the main thread, which alone gets interrupts, or if
    SIGINT is ignored or not handled by Python.
    """
    interrupted, handler = threading.Event(), signal.getsignal(signal.SIGINT)
    in_main = threading.current_thread() is threading.main_thread()
    if not in_main or handler in (signal.SIG_IGN, signal.SIG_DFL, None):
        yield interrupted
        return
    signal.signal(signal.SIGINT, lambda *_: interrupted.set())
    try:
        yield interrupted
    finally:
        signal.signal(signal.SIGINT, handler)
    if interrupted.is_set():
        raise KeyboardInterrupt


@contextlib.contextmanager
def ended_as_by_ctrl_c() -> Iterator[None]:
    """Treat SIGTERM and SIGHUP in the block as a Ctrl-C, so that the block can end what it started.

    A signal that is ignored, as SIGHUP under `nohup`, stays ignored. Does nothing outside the main thread.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    heeded = [each for each in (signal.SIGTERM, signal.SIGHUP) if signal.getsignal(each) is not signal.SIG_IGN]
    handlers = [signal.signal(each, _interrupt) for each in heeded]
    try:
        yield
    finally:
        for each, handler in zip(heeded, handlers, strict=True):
            signal.signal(each, handler)


def _interrupt(number: int, frame: FrameType | None) -> None:
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # as in a background job of a script
        raise KeyboardInterrupt
    signal.raise_signal(signal.SIGINT)
