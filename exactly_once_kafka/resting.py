"""Sinks whose query has ended let their clients go: their threads, their connections, what they remember.

Spark keeps a foreachBatch function until the JVM happens to collect its query as garbage. A process that runs one query
after the other would have the clients of them all meanwhile, each of which goes on asking Kafka how it is.
"""

from __future__ import annotations

import threading
import weakref
from typing import Protocol


class Resting(Protocol):
    """A sink: `has_ended` tells whether its query has.

    `give_up` ends at once what it still asks of Kafka; `rest` does nothing while a batch is being published.
    """

    @property
    def has_ended(self) -> bool: ...

    def give_up(self) -> None: ...

    def rest(self) -> None: ...


_at_work: weakref.WeakSet[Resting] = weakref.WeakSet()
_lock = threading.Lock()


def begins(sink: Resting) -> None:
    """Note that a query begins to use the sink, and let those rest whose queries have ended by now."""
    with _lock:
        others = [each for each in _at_work if each is not sink]
        _at_work.add(sink)
    ended = [each for each in others if each.has_ended]
    with _lock:
        _at_work.difference_update(ended)
    for each in ended:
        each.give_up()
    if ended:  # to close a connection takes its time
        threading.Thread(target=_rest, args=(ended,), name="clients-of-ended-queries", daemon=True).start()


def _rest(sinks: list[Resting]) -> None:
    for each in sinks:
        each.rest()
