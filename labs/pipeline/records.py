"""The records of both topics: how they are written and read, and the window of a time.

A source record's value is `epoch_millis,ip`. A result record's value is the JSON object
`{"window_start", "ip", "count"}`, with the start in epoch milliseconds. Closing records in the source move the
watermark and are never counted.

Guarantee: a value that is written here is read back equal, and any other value is refused. Limitations: Spark needs
expressions of its own (`query/ip_count.py`); they take their constants from here, and tests compare both.
"""

from __future__ import annotations

import json
import re
from typing import Any

SOURCE_TOPIC = "ip_count_source"
SINK_TOPIC = "ip_count_sink"

WINDOW_MS = 5_000  # event time is cut into windows of this size
LATENESS_MS = 5_000  # a record's time may be that far behind the latest time before it

# The IP of a closing record. No access log can contain it: `-` is how a log writes "no value".
CLOSING_IP = "-"
# A closing record makes the window of the last access final if it is that much later than the access.
CLOSING_DELAY_MS = WINDOW_MS + LATENESS_MS

# A time in epoch milliseconds has at most that many digits, which last until the year 5138. The time of an access must
# leave room for the later time of the closing record.
TIME_DIGITS = 14
LATEST_MS = 10**TIME_DIGITS - 1
LATEST_ACCESS_MS = LATEST_MS - CLOSING_DELAY_MS

# A source record's value. The pattern is the same for Java and Python if `\d` and `\s` mean ASCII. Both decode bytes
# that are not UTF-8 to U+FFFD.
SOURCE_PATTERN = rf"\d{{1,{TIME_DIGITS}}},[^\s,\ufffd]+"
NOT_IN_AN_IP = " \t\n\v\f\r\ufffd"  # an IP has none of these, and no comma
# A long backlog of one partition is counted in batches of at most that many records: final results come out while the
# rest is still being read. Several partitions have no limit: it could make Spark read them at different paces, so that
# records would be late.
LARGEST_BATCH = 2_000_000
RESULT_FIELDS = ("window_start", "ip", "count")

_is_source_value = re.compile(SOURCE_PATTERN, re.ASCII).fullmatch
# A result as Spark's to_json writes it, if nothing in its IP is escaped: json takes four times as long to read it.
_plain_result = re.compile(
    rb'\{"window_start":(0|[1-9]\d{0,17}),"ip":"([ !#-\[\]-~]*)","count":(0|[1-9]\d{0,17})\}'
).fullmatch


def window_start(time_ms: int, window_ms: int = WINDOW_MS) -> int:
    """Return the start of the window in which a time lies; both in epoch milliseconds."""
    return time_ms - time_ms % window_ms


def source_value(time_ms: int, ip: str) -> bytes:
    """Write the value of a source record. Raises ValueError for a time that no reader accepts."""
    if not 0 <= time_ms <= LATEST_MS:
        raise ValueError(f"time is {time_ms} ms; expected 0 to {LATEST_MS} ms since 1970")
    return b"%d,%s" % (time_ms, ip.encode())


def parse_source_value(value: bytes | None) -> tuple[int, str] | tuple[None, None]:
    """Return event time and IP of a source record's value, or (None, None) if it is malformed, as the query does."""
    text = (value or b"").decode(errors="replace")
    if not _is_source_value(text):
        return None, None
    time_ms, ip = text.split(",")
    return int(time_ms), ip


def result_value(window_start: int, ip: str, count: int) -> bytes:
    """Write the value of a result record, as Spark's to_json does."""
    fields = dict(zip(RESULT_FIELDS, (window_start, ip, count), strict=True))
    return json.dumps(fields, separators=(",", ":"), ensure_ascii=False).encode()


def parse_result_value(value: bytes | str | None) -> tuple[int, str, int]:
    """Return window start, IP and count of a result record's value. Raises ValueError for any other value."""
    if type(value) is bytes and (plain := _plain_result(value)):
        return int(plain[1]), plain[2].decode(), int(plain[3])
    try:
        text = value.decode() if isinstance(value, bytes) else value or ""
        fields = json.loads(text, object_pairs_hook=without_repeated_keys)
        start, ip, count = (fields[name] for name in RESULT_FIELDS)
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise _no_result(value) from error
    # By type, not isinstance: JSON's `true` would pass for a 1.
    if (type(start), type(ip), type(count)) != (int, str, int):
        raise _no_result(value)
    return start, ip, count


def without_repeated_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return a JSON object. Raises ValueError if a key is there twice, since readers would take different values."""
    fields = dict(pairs)
    if len(fields) < len(pairs):
        raise ValueError("a key is there twice")
    return fields


def _no_result(value: bytes | str | None) -> ValueError:
    return ValueError(
        f'{value!r:.80} is not a result of the IP count; expected {{"window_start": epoch millis, "ip": text, '
        '"count": whole number}'
    )
