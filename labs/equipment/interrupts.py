"""Let Ctrl-C wait while something happens that must not be left half done."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Iterator


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
