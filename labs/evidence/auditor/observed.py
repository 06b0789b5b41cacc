"""What a reader observed, as plain records that a reader of any pipeline can produce."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime

Key = tuple[int, str]  # (window start in epoch milliseconds, IP); at the source (event time, IP)

LONGEST_NAME = 80  # characters of an IP or host name that a sentence shows


@dataclass(frozen=True, slots=True)
class Result:
    """One record read from the sink: the IP made `count` requests in the window that began at `window_start`.

    `window_start` is in epoch milliseconds. The other fields are optional evidence; each makes more anomalies
    detectable. The record's headers give the micro-batch, the attempt (a name unique to each try of a batch), and
    how many rows the attempt wrote in all, in every record or only in the last. Kafka gives partition and offset.
    Raises TypeError for a key or count of another type, since Python calls 5000.0 and 5000, or True and 1, equal.
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
            raise TypeError(f"expected an int, a str and an int; found {found}")


class Reading(list[Result]):
    """The results that one reader found. `decided` tells for each partition whether every transaction in it had ended.

    An open transaction hides all records behind it, whoever wrote them. So an audit is never valid if a partition of
    its reading is not decided.
    """

    def __init__(self, results: Iterable[Result] = (), decided: Mapping[int, bool] | None = None):
        super().__init__(results)
        self.decided = dict(decided or {})


@dataclass(frozen=True)
class SourceHistory:
    """What was sent to the source topic and what it holds, as numbers of records per (event time, IP).

    Acknowledged records must be stored. Indeterminate ones, which were never answered, may be stored.
    """

    acknowledged: Mapping[Key, int]
    stored: Mapping[Key, int]
    indeterminate: Mapping[Key, int] = field(default_factory=dict)


def describe(key: Key) -> str:
    """Return a key in words: the time (ISO, UTC) and the IP, escaped if unprintable and cut at LONGEST_NAME."""
    time, ip = key
    text = str(ip) if str(ip).isprintable() else repr(ip)
    if len(text) > LONGEST_NAME:
        text = text[:LONGEST_NAME] + "…"
    return f"{utc(time)} {text}"


def utc(millis: int) -> str:
    """Return epoch milliseconds in ISO format and UTC; a number outside the calendar is returned as "N ms"."""
    try:
        time = datetime.fromtimestamp(millis // 1000, UTC)
    except (ValueError, OverflowError, OSError, TypeError):
        return f"{millis!r} ms"
    fraction = f".{millis % 1000:03d}" if millis % 1000 else ""
    return f"{time:%Y-%m-%dT%H:%M:%S}{fraction}Z"
