"""Read web server access logs as (event time, IP) pairs.

Four formats, recognised line by line: the common and the combined log format of NGINX and Apache, Apache's
vhost_combined (`host:port` before the client), and `epoch_millis,ip`. Files may be plain or gzip.

Guarantee: whatever the bytes, each line is either yielded or counted in the report under a reason, and memory stays
bounded. If it is not clear which word of a line is the client, the line is refused. Limitations: a wrong time or
address that looks right is accepted, and so is a line in which another one begins before its time. The report may be
ahead of the consumer by the lines of one block.

Only the time and the client of a line are used. The range of a time is that of `records.py`, so the whole pipeline can
carry each one.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Generator, Iterable, Iterator
from datetime import UTC, datetime, timedelta, timezone, tzinfo
from functools import lru_cache, partial
from ipaddress import ip_address

from labs.pipeline.log.log_files import MAX_LINE, check_each_once, check_readable, whole_lines
from labs.pipeline.log.log_report import BadLine, LogReport, printable_name
from labs.pipeline.records import LATEST_ACCESS_MS

CONTROL = re.compile(rb"[\x00-\x08\x0e-\x1f\x7f]")

_CLOCK = rb"(\d\d):(\d\d):(\d\d)(?:\.(\d{1,9}))?"  # and parts of a second
_LOG_TIME = re.compile(rb"(\d\d)/([A-Z][a-z]{2})/(\d{4}):" + _CLOCK + rb"(?: ([+-])(\d\d):?([0-5]\d))?")
_ISO_TIME = re.compile(rb"(\d{4})-(\d\d)-(\d\d)[T ]" + _CLOCK + rb"(?:Z| ?([+-])(\d\d):?([0-5]\d))?")
_MONTHS = {name: i for i, name in enumerate(b"Jan Feb Mar Apr May Jun Jul Aug Sep Oct Nov Dec".split(), 1)}
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

_CLIENT = re.compile(rb"[0-9A-Za-z:._%-]{1,254}")  # no comma: the source topic's records are "time,client"
_LABEL = r"[a-z0-9_](?:[a-z0-9_-]{0,61}[a-z0-9_])?"
_HOST_NAME = re.compile(rf"(?:{_LABEL}\.)*(?!(?:\d+|0x[0-9a-f]*)\Z){_LABEL}")  # 1.2.3 is not a name
_LIKE_ADDRESS = re.compile(rb"(?<![0-9])(?:[0-9]{1,3}\.){3}[0-9]|[0-9A-Fa-f]{0,4}:[0-9A-Fa-f]{0,4}:")
_VIRTUAL_HOST = re.compile(rb"(\[[0-9A-Fa-f:.]+\]|[0-9A-Za-z._-]+):[0-9]{1,5}")


def epoch_millis(digits: bytes) -> int:
    """Return a time that is written in epoch milliseconds. Raises BadLine outside 0 to LATEST_ACCESS_MS."""
    if len(digits) <= 15 and 0 <= (millis := int(digits)) <= LATEST_ACCESS_MS:
        return millis
    raise BadLine("bad time", digits)


def log_millis(stamp: bytes, zone: tzinfo) -> int:
    """Return a time in epoch milliseconds; `zone` applies if it has no offset.

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
            raise BadLine("bad time", stamp)  # the zone has no such time: its clocks were put forward
    except (ValueError, OverflowError):
        raise BadLine("bad time", stamp) from None
    millis = since_epoch // timedelta(milliseconds=1) + int((fraction or b"").ljust(3, b"0")[:3])
    if not 0 <= millis <= LATEST_ACCESS_MS:
        raise BadLine("bad time", stamp)
    return millis


def client_before_time(head: bytes) -> str:
    """Return the client from the text before a line's time: `client identity user`, or these after `host:port`.

    The user may contain spaces, and the client chooses it. A prefix (of syslog, of a container) may contain spaces,
    too: if the first word could be part of a prefix, the line is refused.
    """
    first, rest = head.split(b" ", 1)
    if CONTROL.search(rest):
        raise BadLine("not text", head)
    identity, user = rest.split(b" ", 1)
    if identity.split() != [identity]:
        raise BadLine("unknown format", head)
    if b" [" in user.rpartition(b"]")[2]:  # a time without its end: the server was stopped while it wrote it
        raise BadLine("two accesses", head)
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


Access = tuple[int, str]  # (event time in epoch milliseconds UTC, IP: an address, or a host name)

CACHE_SIZE = 65_536  # entries
LONGEST_KEY = 300  # bytes: an entry's; a client has at most 254

# Every line matches, the last alternative being any line, so that findall gives one row per line. Possessive
# quantifiers (++, *+) keep the time for a hostile line proportional to its length. A group that contains one is not
# possessive itself, because `re` in CPython 3.11.2 (Debian 12) would then match nothing.
_LINE = re.compile(
    rb"""\0*+(?:\xef\xbb\xbf)?(?:                       # a hole; a byte order mark, also amid concatenated files
    (?P<millis>-?\d++),(?P<address>[^\r\n]*+)\r*+\n     # epoch_millis,ip
    |
    (?P<head>\S++[ ]\S++[ ](?:\S++|[^"\n]*?))[ ]       # client, identity, user (which may hold spaces)
    \[(?P<stamp>[^][\n]++)\][ ]
    "[^"\n]*+(?:"[^"\n]*+)*?"                           # the request, which may hold quotes
    [ ](?:\d{3}|-)[ ](?:\d++|-)(?:[ \r].*)?\n          # status, size, and whatever the format adds
    |
    .*\n)""",
    re.VERBOSE,
)
# An address, identity, user, time and request that come after other text in the line.
_LATER_CLIENT = re.compile(
    rb"(?<=[^\w.:])(?:[0-9]++\.[0-9.]++|[0-9A-Fa-f]*+:[0-9A-Fa-f:.]++)[ ]"
    rb'\S++[ ]\S++[ ]\[[^][\n]{1,40}+\][ ]\\?"'
)

_REQUEST = b'] "', b'] \\"'  # what comes before a request, once in each line
# Another access after the first one's `] "`, because the server was stopped while it wrote.
_SECOND_ACCESS = re.compile(
    rb"(?:(?<![0-9.])[0-9]++\.[0-9.]++|(?<![0-9A-Fa-f:.])[0-9A-Fa-f]*+:[0-9A-Fa-f:.]++)[ ]"
    rb'\S++[ ]\S++[ ]\[[^][\n]{1,40}+\][ ]\\?"'
)


def parse_line(line: bytes, zone: tzinfo = UTC) -> Access:
    """Return the access in one line, with or without its line end. Raises BadLine.

    `zone` applies to a log time without an offset. If a clock change repeats that time, the first of the two is taken.
    """

    def refuse(_index: int, reason: str, line: bytes) -> None:
        raise BadLine(reason, line)

    line = line.removesuffix(b"\n").lstrip(b"\0")
    if len(line) > MAX_LINE:
        raise BadLine("line too long", line)
    if b"\n" in line:
        raise BadLine("unknown format", line)
    return _parser(zone).parse(line + b"\n", refuse)[0]


def read_access_log(
    paths: Iterable[str | os.PathLike], report: LogReport, zone: tzinfo = UTC
) -> Generator[Access, None, None]:
    """Return an iterator over the accesses of several logs, in file order; `-` is standard input.

    Raises LogUnreadable at once, before any line is read, if a path cannot be read or two are the same file.
    """
    if isinstance(paths, str | os.PathLike):
        paths = [paths]
    names = [os.fsdecode(path) for path in paths]
    for name in names:
        check_readable(name)
    check_each_once(names)
    return _read_all(names, report, _Parser(zone))


def _read_all(names: list[str], report: LogReport, parser: _Parser) -> Generator[Access, None, None]:
    for name in names:
        yield from _read(name, report, parser)


def _read(name: str, report: LogReport, parser: _Parser) -> Iterator[Access]:
    report.begin("standard input" if name == "-" else printable_name(name))
    number = 1  # of the next line

    def reject(index: int, reason: str, line: bytes) -> None:
        report.reject(reason, number + index, line)

    try:
        for lines in whole_lines(name):
            length = lines.find(b"\n")
            if length > MAX_LINE:
                reject(0, "line too long", lines)
                number += 1
                lines = lines[length + 1 :]
            accesses = parser.parse(lines, reject)
            report.accept(len(accesses))
            number += lines.count(b"\n")
            yield from accesses
    except BadLine as damage:
        reject(0, damage.reason, damage.line)


class _Parser:
    """Parse blocks of lines, remembering the times and the clients already checked."""

    def __init__(self, zone: tzinfo):
        self.times = _Cache(partial(log_millis, zone=zone))
        self.clients = _Cache(client)
        self.heads = _Cache(client_before_time)

    def parse(self, lines: bytes, reject: Callable[[int, str, bytes], None]) -> list[Access]:
        """Return the accesses of lines that each end in a newline; call reject(index, reason, line) for the others."""
        times, heads, clients = self.times, self.heads, self.clients
        accesses: list[Access] = []
        keep = accesses.append
        texts: list[bytes] = []
        rows = _LINE.findall(lines)
        doubtful = _doubtful(lines, rows)
        for index, (millis, address, head, stamp) in enumerate(rows):
            try:
                if stamp:
                    if index in doubtful:
                        raise BadLine(doubtful[index])
                    keep((times[stamp], heads[head]))
                    continue
                if millis:
                    keep((epoch_millis(millis), clients[address]))
                    continue
                reason = None
            except BadLine as bad:
                reason = bad.reason
            texts = texts or lines.split(b"\n")
            reject(index, reason or _why_unmatched(texts[index]), texts[index])
        return accesses


_parser = lru_cache(maxsize=4)(_Parser)


class _Cache(dict):
    """Cache a function of bytes; forget everything when full, which bounds the memory."""

    def __init__(self, function: Callable[[bytes], int | str]):
        super().__init__()
        self.function = function

    def __missing__(self, key: bytes) -> int | str:
        value = self.function(key)
        if len(key) <= LONGEST_KEY:
            if len(self) >= CACHE_SIZE:
                self.clear()
            self[key] = value
        return value


def _doubtful(lines: bytes, rows: list[tuple[bytes, ...]]) -> dict[int, str]:
    """Return the lines that look like one access but hold several, with the reason to refuse them."""
    found: dict[int, str] = {}
    requests = sum(map(lines.count, _REQUEST))
    if requests > len([None for row in rows if row[3]]) or lines.count(b"\r") > lines.count(b"\r\n"):
        for index, line in enumerate(lines.split(b"\n")):
            if b"\r" in line.rstrip(b"\r"):
                found[index] = "carriage return"
            elif _SECOND_ACCESS.search(line.partition(_REQUEST[0])[2]):
                found[index] = "two accesses"
    return found


def _why_unmatched(line: bytes) -> str:
    text = line.lstrip(b"\0").removeprefix(b"\xef\xbb\xbf")
    if not text.strip():
        return "empty line"
    try:
        text.decode()
    except UnicodeDecodeError:
        return "not text"
    if CONTROL.search(text):
        return "not text"
    if b"\r" in text.rstrip(b"\r"):
        return "carriage return"
    if text.lstrip().startswith((b"{", b"[{")):
        return "JSON"
    return "text before the client" if _LATER_CLIENT.search(text) else "unknown format"
