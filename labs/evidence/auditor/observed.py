"""What was observed, as plain records that any reader of any pipeline can fill in."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime

Key = tuple[int, str]  # (window start in epoch milliseconds, IP); at the source (event time, IP)

LONGEST_NAME = 80  # characters of an IP or host name that a sentence shows


@dataclass(frozen=True, slots=True)
class Result:
    """One record read from the sink: the IP made `count` requests in the window that began at `window_start`.

    `window_start` is in epoch milliseconds. The rest is evidence that a reader adds where it has it, and each
    piece makes more anomalies detectable. From the record's headers: the micro-batch, the attempt at it (a
    name unique to each try of a batch), and how many rows the attempt wrote in all, which every record may
    say, or only the last one. From Kafka: partition and offset. Raises TypeError for a key or count of another
    type, which Python might call equal: 5000.0 and 5000, True and 1.
    """

    window_start: int
    ip: str
    count: int
    batch_id: int | None = None
    attempt: str | None = None
    batch_rows: int | None = None
    partition: int | None = None
    offset: int | None = None

    def __post_init__(self) -> None:
        if not (type(self.window_start) is int and type(self.ip) is str and type(self.count) is int):
            found = f"window_start {self.window_start!r:.40}, ip {self.ip!r:.40}, count {self.count!r:.40}"
            raise TypeError(f"a result has a whole number, a text and a whole number; found {found}")


class Reading(list[Result]):
    """What one reader of a topic found, and per partition whether everything in it was decided by then.

    Behind a transaction that is neither committed nor aborted lie records that nobody can see yet, whoever wrote
    them: the audit of a reading with such a partition is never valid.
    """

    def __init__(self, results: Iterable[Result] = (), decided: Mapping[int, bool] | None = None):
        super().__init__(results)
        self.decided = dict(decided or {})


@dataclass(frozen=True)
class SourceHistory:
    """What was sent to the source topic and what it holds, as numbers of records per (event time, IP).

    What was acknowledged must be stored; what is indeterminate, because no answer ever came, may be.
    """

    acknowledged: Mapping[Key, int]
    stored: Mapping[Key, int]
    indeterminate: Mapping[Key, int] = field(default_factory=dict)


def describe(key: Key) -> str:
    """Return a key in words: the time in ISO format and UTC, then the IP, whatever bytes it was made of."""
    time, ip = key
    text = str(ip) if str(ip).isprintable() else repr(ip)
    if len(text) > LONGEST_NAME:
        text = text[:LONGEST_NAME] + "…"
    return f"{utc(time)} {text}"


def utc(millis: int) -> str:
    """Return epoch milliseconds in ISO format and UTC; a number that is no time comes back as it is."""
    try:
        time = datetime.fromtimestamp(millis // 1000, UTC)
    except (ValueError, OverflowError, OSError, TypeError):
        return f"{millis!r} ms"
    fraction = f".{millis % 1000:03d}" if millis % 1000 else ""
    return f"{time:%Y-%m-%dT%H:%M:%S}{fraction}Z"
