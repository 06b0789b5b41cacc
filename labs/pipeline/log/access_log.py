"""Read web server access logs as (event time, IP) pairs.

Four formats, told apart line by line: the common and the combined log format of NGINX and Apache, Apache's
vhost_combined (`host:port` before the client), and `epoch_millis,ip`. Files may be plain or gzip.

Guarantee: whatever the bytes, each line is either yielded or counted in the report under a reason, and
memory stays bounded. It stops at what a line cannot tell: a wrong time or address that looks right
is believed. Where a line leaves open which word is the client, it is refused. The report may be ahead of
the consumer by the lines of one block.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Generator, Iterable, Iterator
from datetime import UTC, tzinfo
from functools import lru_cache, partial

from labs.pipeline.log.fields import CONTROL, client, client_before_time, epoch_millis, log_millis
from labs.pipeline.log.log_lines import MAX_LINE, check_each_once, check_readable, whole_lines
from labs.pipeline.log.log_report import BadLine, LogReport, printable_name

Access = tuple[int, str]  # (event time in epoch milliseconds UTC, IP: an address, or a host name)

CACHE_SIZE = 65_536  # entries
LONGEST_KEY = 300  # bytes: an entry's; a client has at most 254

# Every line matches, the last alternative being any line, so that findall gives one row per line. Possessive
# quantifiers (++, *+) keep the time for a hostile line proportional to its length. No group is possessive that
# holds such a quantifier: the `re` of CPython 3.11.2, Debian 12's own, then matches nothing.
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
# An address, identity and user before a time and a request, after something else.
_LATER_CLIENT = re.compile(
    rb"(?<=[^\w.:])(?:[0-9]++\.[0-9.]++|[0-9A-Fa-f]*+:[0-9A-Fa-f:.]++)[ ]"
    rb'\S++[ ]\S++[ ]\[[^][\n]{1,40}+\][ ]\\?"'
)

_REQUEST = b'] "', b'] \\"'  # what stands before a request, once in each line
# Another access behind the first one's `] "`, where a server was cut short while it wrote.
_SECOND_ACCESS = re.compile(
    rb"(?:(?<![0-9.])[0-9]++\.[0-9.]++|(?<![0-9A-Fa-f:.])[0-9A-Fa-f]*+:[0-9A-Fa-f:.]++)[ ]"
    rb'\S++[ ]\S++[ ]\[[^][\n]{1,40}+\][ ]\\?"'
)


def parse_line(line: bytes, zone: tzinfo = UTC) -> Access:
    """Return the access in one line, with or without its line end. Raises BadLine.

    `zone` applies to a log time without an offset (to the first of two, where a clock change repeats it).
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

    Raises LogUnreadable at once, before any line is read, if one of the paths cannot be, or two are the same file.
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
        """Return the accesses of lines that end in a newline each; call reject(index, reason, line) else."""
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
    """Remember a function of bytes; forget everything when full, which bounds the memory."""

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
    """Return which lines look like one access and hold several, and the reason to refuse them; mostly none."""
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
