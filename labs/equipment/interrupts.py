"""Ctrl-C waits while something happens that must not be left half done, and other signals end a program as it does."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Iterator
from types import FrameType


@contextlib.contextmanager
def interrupts_wait() -> Iterator[threading.Event]:
    """Keep a SIGINT until the end of the block, and raise KeyboardInterrupt then. The event tells of it meanwhile.

    An exception in the block goes before it. Nothing is done in any thread but the main one, which alone is ever
    interrupted, and nothing where SIGINT is ignored or not Python's to handle.
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
    """Take SIGTERM and SIGHUP for a Ctrl-C in the block, so that what it started is ended and tidied up.

    One that is ignored, as `nohup` does with SIGHUP, stays so. Nothing is done in any thread but the main one.
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
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # a background job of a script, say, can still be told
        raise KeyboardInterrupt
    signal.raise_signal(signal.SIGINT)
