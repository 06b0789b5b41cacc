"""The two fields of a log line that count: its time and its IP. Both raise BadLine for what is none."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta, timezone, tzinfo
from ipaddress import ip_address

from labs.pipeline.log.log_report import BadLine

END_OF_TIME = 253_402_300_800_000  # 10000-01-01T00:00:00Z: four-digit years end here, in Java and in Spark

_STAMP = re.compile(rb"(\d\d)/([A-Z][a-z]{2})/(\d{4}):(\d\d):(\d\d):(\d\d)(?: ([+-])(\d\d)([0-5]\d))?")
_MONTHS = {name: i for i, name in enumerate(b"Jan Feb Mar Apr May Jun Jul Aug Sep Oct Nov Dec".split(), 1)}
_CLIENT = re.compile(rb"[0-9A-Za-z:._%-]{1,254}")  # no comma: the source topic's records are "time,client"
_LABEL = r"[a-z0-9_](?:[a-z0-9_-]{0,61}[a-z0-9_])?"
_HOST_NAME = re.compile(rf"(?:{_LABEL}\.)*(?!(?:\d+|0x[0-9a-f]*)\Z){_LABEL}")  # 1.2.3 is no name


def epoch_millis(digits: bytes) -> int:
    """Return what the digits say. Raises BadLine outside the years 1970 to 9999."""
    if len(digits) <= 15 and 0 <= (millis := int(digits)) < END_OF_TIME:
        return millis
    raise BadLine("bad time", digits)


def log_millis(stamp: bytes, zone: tzinfo) -> int:
    """Return a time like `10/Oct/2000:13:55:36 -0700` in epoch milliseconds; `zone` applies where it has no offset."""
    match = _STAMP.fullmatch(stamp)
    if not match:
        raise BadLine("bad time", stamp)
    day, month, year, hour, minute, second, sign, hours, minutes = match.groups()
    try:
        if sign:
            offset = timedelta(hours=int(hours), minutes=int(minutes))
            zone = timezone(-offset if sign == b"-" else offset)
        date, clock = (int(year), int(_MONTHS.get(month, 0)), int(day)), (int(hour), int(minute), int(second))
        since_epoch = datetime(*date, *clock, tzinfo=zone) - datetime(1970, 1, 1, tzinfo=UTC)
    except (ValueError, OverflowError):
        raise BadLine("bad time", stamp) from None
    millis = since_epoch // timedelta(milliseconds=1)
    if not 0 <= millis < END_OF_TIME:
        raise BadLine("bad time", stamp)
    return millis


def canonical_ip(raw: bytes) -> str:
    """Return an address in its canonical form (an IPv4-mapped one as IPv4), or a host name in lower case."""
    if not _CLIENT.fullmatch(raw):
        raise BadLine("bad address", raw)
    text = raw.decode("ascii")
    try:
        address = ip_address(text)
    except ValueError:
        name = text.lower().removesuffix(".")
        if _HOST_NAME.fullmatch(name):
            return name
        raise BadLine("bad address", raw) from None
    return str(getattr(address, "ipv4_mapped", None) or address)
