"""Let Ctrl-C wait while something happens that must not be left half done."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Iterator


@contextlib.contextmanager
def interrupts_wait() -> Iterator[threading.Event]:
    """Keep a SIGINT until the end of the block, and raise KeyboardInterrupt then. The event tells of it meanwhile.

    An exception in the block goes before it. Where it stops: only the main thread is ever interrupted, and in any other
    this does nothing.
    """
    interrupted = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield interrupted
        return
    handler = signal.signal(signal.SIGINT, lambda *_: interrupted.set())
    try:
        yield interrupted
    finally:
        signal.signal(signal.SIGINT, handler)
    if interrupted.is_set():
        raise KeyboardInterrupt
