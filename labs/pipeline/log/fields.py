"""The two fields of a log line that count: its time and its client. All raise BadLine for what is none.

Guarantee: what is read here, the whole way carries, since the range of a time is that of `records.py`. In doubt a line
is refused: a word before the client is never taken for the client.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta, timezone, tzinfo
from ipaddress import ip_address

from labs.pipeline.log.log_report import BadLine
from labs.pipeline.records import LATEST_ACCESS_MS

CONTROL = re.compile(rb"[\x00-\x08\x0e-\x1f\x7f]")

_CLOCK = rb"(\d\d):(\d\d):(\d\d)(?:\.(\d{1,9}))?"  # and parts of a second
_LOG_TIME = re.compile(rb"(\d\d)/([A-Z][a-z]{2})/(\d{4}):" + _CLOCK + rb"(?: ([+-])(\d\d):?([0-5]\d))?")
_ISO_TIME = re.compile(rb"(\d{4})-(\d\d)-(\d\d)[T ]" + _CLOCK + rb"(?:Z| ?([+-])(\d\d):?([0-5]\d))?")
_MONTHS = {name: i for i, name in enumerate(b"Jan Feb Mar Apr May Jun Jul Aug Sep Oct Nov Dec".split(), 1)}
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

_CLIENT = re.compile(rb"[0-9A-Za-z:._%-]{1,254}")  # no comma: the source topic's records are "time,client"
_LABEL = r"[a-z0-9_](?:[a-z0-9_-]{0,61}[a-z0-9_])?"
_HOST_NAME = re.compile(rf"(?:{_LABEL}\.)*(?!(?:\d+|0x[0-9a-f]*)\Z){_LABEL}")  # 1.2.3 is no name
_LIKE_ADDRESS = re.compile(rb"(?<![0-9])(?:[0-9]{1,3}\.){3}[0-9]|[0-9A-Fa-f]{0,4}:[0-9A-Fa-f]{0,4}:")
_VIRTUAL_HOST = re.compile(rb"(\[[0-9A-Fa-f:.]+\]|[0-9A-Za-z._-]+):[0-9]{1,5}")


def epoch_millis(digits: bytes) -> int:
    """Return what the digits say. Raises BadLine outside 0 to LATEST_ACCESS_MS."""
    if len(digits) <= 15 and 0 <= (millis := int(digits)) <= LATEST_ACCESS_MS:
        return millis
    raise BadLine("bad time", digits)


def log_millis(stamp: bytes, zone: tzinfo) -> int:
    """Return a time in epoch milliseconds; `zone` applies where it has no offset.

    It is written like `10/Oct/2000:13:55:36 -0700` or, in ISO 8601, `2000-10-10T13:55:36-07:00`; both may have parts of
    a second.
    """
    if match := _LOG_TIME.fullmatch(stamp):
        day, name, year, *clock = match.groups()
        month = _MONTHS.get(name, 0)
    elif match := _ISO_TIME.fullmatch(stamp):
        year, number, day, *clock = match.groups()
        month = int(number)
        zone = UTC if stamp.endswith(b"Z") else zone
    else:
        raise BadLine("bad time", stamp)
    hour, minute, second, fraction, sign, hours, minutes = clock
    try:
        if sign:
            offset = timedelta(hours=int(hours), minutes=int(minutes))
            zone = timezone(-offset if sign == b"-" else offset)
        time = datetime(int(year), month, int(day), int(hour), int(minute), int(second), tzinfo=zone)
        since_epoch = time - _EPOCH
        if (_EPOCH + since_epoch).astimezone(zone) != time:
            raise BadLine("bad time", stamp)  # no clock of the zone has shown it: clocks were put forward
    except (ValueError, OverflowError):
        raise BadLine("bad time", stamp) from None
    millis = since_epoch // timedelta(milliseconds=1) + int((fraction or b"").ljust(3, b"0")[:3])
    if not 0 <= millis <= LATEST_ACCESS_MS:
        raise BadLine("bad time", stamp)
    return millis


def client_before_time(head: bytes) -> str:
    """Return the client of what a line has before its time: `client identity user`, or `host:port` and those.

    The user may hold spaces, and whoever asks for a page chooses it. So may a prefix (of syslog, of a container):
    where the first word could be either, the line is refused.
    """
    first, rest = head.split(b" ", 1)
    if CONTROL.search(rest):
        raise BadLine("not text", head)
    identity, user = rest.split(b" ", 1)
    if identity.split() != [identity]:
        raise BadLine("unknown format", head)
    if address := _address(first):
        if identity == b"-" or not _LIKE_ADDRESS.search(rest):
            return address
    elif (host := _VIRTUAL_HOST.fullmatch(first)) and b" " in user:
        return _client_of_virtual_host(host[1], rest)
    elif name := _host_name(first):
        one_word, no_prefix = b" " not in user and b"." not in identity, b"-" not in user.split(b" ")
        if (one_word or (identity == b"-" and no_prefix)) and not _LIKE_ADDRESS.search(rest):
            return name
    elif first.startswith(b"{"):
        raise BadLine("JSON", head)
    elif first.endswith(b",") or _is_list(first):
        raise BadLine("list of clients", head)
    elif not _LIKE_ADDRESS.search(rest) and (identity == b"-" or b" " not in user or _LIKE_ADDRESS.search(first)):
        raise BadLine("bad address", first)
    raise BadLine("text before the client", head)


def client(raw: bytes) -> str:
    """Return an address in its canonical form (an IPv4-mapped one as IPv4), or a host name in lower case."""
    if found := _address(raw) or _host_name(raw):
        return found
    raise BadLine("list of clients" if _is_list(raw) else "bad address", raw)


def _client_of_virtual_host(host: bytes, rest: bytes) -> str:
    """Return the client after `host:port`, as Apache's format vhost_combined has it."""
    first = rest.split(b" ", 1)[0]
    if _address(first) or (first != b"-" and _host_name(host)):
        return client_before_time(rest)
    raise BadLine("bad address" if first == b"-" else "text before the client", rest)


def _address(raw: bytes) -> str | None:
    if not _CLIENT.fullmatch(raw):
        return None
    try:
        address = ip_address(raw.decode("ascii"))
    except ValueError:
        return None
    return str(getattr(address, "ipv4_mapped", None) or address)


def _host_name(raw: bytes) -> str | None:
    if not _CLIENT.fullmatch(raw):
        return None
    name = raw.decode("ascii").lower().removesuffix(".")
    return name if _HOST_NAME.fullmatch(name) else None


def _is_list(raw: bytes) -> bool:
    words = raw.split(b",", 16)
    return len(words) > 1 and all(_address(word.strip()) for word in words)
