"""Read web server access logs as (event time, client) pairs.

Three formats, told apart line by line: the common and the combined log format of NGINX and Apache,
and `epoch_millis,ip`. Files may be plain or gzip.

Guarantee: whatever the bytes, each line is either yielded or counted in the report under a reason, and
memory stays bounded. It stops at what a line cannot tell: a wrong time or address that looks right
is believed. The report may be ahead of the consumer by the lines of one block.
"""

from __future__ import annotations

import os
import re
import stat
import sys
import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta, timezone, tzinfo
from functools import lru_cache, partial
from ipaddress import ip_address
from itertools import chain
from typing import BinaryIO, NamedTuple

Access = tuple[int, str]  # (event time in epoch milliseconds UTC, client: an address or a host name)

MAX_LINE = 64 * 1024  # bytes, without the newline
CACHE_SIZE = 65_536  # entries
END_OF_TIME = 253_402_300_800_000  # 10000-01-01T00:00:00Z: four-digit years end here, in Java and in Spark
EXAMPLES_PER_REASON = 3
EXAMPLE_LENGTH = 80

# Every line matches, the last alternative being any line, so that findall gives one row per line. The
# possessive quantifiers (++, *+) keep the time for a hostile line proportional to its length.
_LINE = re.compile(
    rb"""(?:\xef\xbb\xbf)?+(?:                          # a byte order mark, also amid concatenated files
    (?P<millis>-?\d++),(?P<address>[^\r\n]*+)\r?\n      # epoch_millis,ip
    |
    (?P<client>\S++)[ ]\S++[ ](?:\S++|[^"\n]*?)[ ]      # client, identity, user (which may hold spaces)
    \[(?P<stamp>[^][\n]++)\][ ]
    "[^"\n]*+(?:"(?![ ]\d{3}[ ])[^"\n]*+)*+"            # the request, which may hold quotes
    [ ]\d{3}[ ](?:\d++|-)(?:[ \r].*)?+\n                # status, size, and whatever the format adds
    |
    .*\n)""",
    re.VERBOSE,
)
_STAMP = re.compile(rb"(\d\d)/([A-Z][a-z]{2})/(\d{4}):(\d\d):(\d\d):(\d\d)(?: ([+-])(\d\d)([0-5]\d))?")
_MONTHS = {name: i for i, name in enumerate(b"Jan Feb Mar Apr May Jun Jul Aug Sep Oct Nov Dec".split(), 1)}
_CONTROL = re.compile(rb"[\x00-\x08\x0e-\x1f\x7f]")
_CLIENT = re.compile(rb"[0-9A-Za-z:._%-]{1,254}")  # no comma: the source topic's records are "time,client"
_LABEL = r"[a-z0-9_](?:[a-z0-9_-]{0,61}[a-z0-9_])?"
_HOST_NAME = re.compile(rf"(?:{_LABEL}\.)*(?!(?:\d+|0x[0-9a-f]*)\Z){_LABEL}")  # 1.2.3 is no name


class BadLine(ValueError):
    """A line that is no access; `reason` is a short, stable string to count by."""

    def __init__(self, reason: str, line: bytes = b""):
        super().__init__(f"{reason}: {printable(line)}" if line else reason)
        self.reason = reason
        self.line = line


class LogUnreadable(OSError):
    """A log cannot be opened or read at all."""


class Example(NamedTuple):
    file: str
    line_number: int  # from 1
    text: str  # printable


@dataclass
class LogReport:
    """What became of the lines: `lines == good + bad_total` at every moment."""

    lines: int = 0
    good: int = 0
    bad: Counter[str] = field(default_factory=Counter)
    examples: dict[str, list[Example]] = field(default_factory=dict)

    @property
    def bad_total(self) -> int:
        return self.bad.total()

    def accept(self, lines: int) -> None:
        self.lines += lines
        self.good += lines

    def reject(self, reason: str, file: str, line_number: int, line: bytes) -> None:
        self.lines += 1
        self.bad[reason] += 1
        examples = self.examples.setdefault(reason, [])
        if len(examples) < EXAMPLES_PER_REASON:
            examples.append(Example(file, line_number, printable(line)))

    def as_dict(self) -> dict:
        """Return plain values for JSON; `bad` is the total."""
        examples = {reason: [e._asdict() for e in found] for reason, found in self.examples.items()}
        return {
            "lines": self.lines,
            "good": self.good,
            "bad": self.bad_total,
            "bad_by_reason": dict(self.bad.most_common()),
            "bad_examples": examples,
        }

    def __str__(self) -> str:
        text = [f"lines: {self.lines:,} ({self.good:,} good, {self.bad_total:,} bad)"]
        for reason, count in self.bad.most_common():
            text.append(f"  {reason}: {count:,}")
            text += [f"    {e.file}:{e.line_number}: {e.text}" for e in self.examples[reason]]
        return "\n".join(text)


def printable(line: bytes) -> str:
    """Return the first 80 characters of a line in ASCII, other bytes and control codes escaped."""
    return line[:EXAMPLE_LENGTH].decode("latin-1").encode("unicode_escape").decode("ascii")[:EXAMPLE_LENGTH]


def parse_line(line: bytes, zone: tzinfo = UTC) -> Access:
    """Return the access in one line, with or without its line end. Raises BadLine.

    `zone` applies to a log time without an offset (to the first of two, where a clock change repeats it).
    """

    def refuse(_index: int, reason: str, line: bytes) -> None:
        raise BadLine(reason, line)

    line = line.removesuffix(b"\n")
    if len(line) > MAX_LINE:
        raise BadLine("line too long", line)
    if b"\n" in line:
        raise BadLine("unknown format", line)
    return _parser(zone).parse(line + b"\n", refuse)[0]


def read_access_log(paths: Iterable[str | os.PathLike], report: LogReport, zone: tzinfo = UTC) -> Iterator[Access]:
    """Return an iterator over the accesses of several logs, in file order; `-` is standard input.

    Raises LogUnreadable at once, before any line is read, if one of the paths cannot be.
    """
    if isinstance(paths, str | os.PathLike):
        paths = [paths]
    names = [os.fsdecode(path) for path in paths]
    for name in names:
        _check_readable(name)
    return _read_all(names, report, _Parser(zone))


def _check_readable(name: str) -> None:
    # Looks without opening: a named pipe can be opened only once.
    if name == "-":
        if sys.stdin is None:
            raise LogUnreadable("cannot read standard input: it is closed")
        return
    try:
        mode = os.stat(name).st_mode
    except (OSError, ValueError) as error:
        raise _unreadable(name, error) from error
    if stat.S_ISDIR(mode):
        raise LogUnreadable(f"cannot read log {name!r}: it is a directory; name the files in it")
    if not os.access(name, os.R_OK):
        raise LogUnreadable(f"cannot read log {name!r}: permission denied; allow reading it, or use sudo")


def _unreadable(name: str, error: Exception) -> LogUnreadable:
    cause = getattr(error, "strerror", None) or error
    return LogUnreadable(f"cannot read log {name!r}: {cause}; expected an access log, or - for standard input")


def _read_all(names: list[str], report: LogReport, parser: _Parser) -> Iterator[Access]:
    for name in names:
        with _open(name) as stream:
            yield from _read(stream, "standard input" if name == "-" else name, report, parser)


def _open(name: str) -> AbstractContextManager[BinaryIO]:
    if name == "-":
        return nullcontext(sys.stdin.buffer)
    try:
        return open(name, "rb")
    except OSError as error:
        raise _unreadable(name, error) from error


def _read(stream: BinaryIO, name: str, report: LogReport, parser: _Parser) -> Iterator[Access]:
    number = 1  # of the next line

    def reject(index: int, reason: str, line: bytes) -> None:
        report.reject(reason, name, number + index, line)

    try:
        for lines in _whole_lines(_blocks(stream, name)):
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
        self.times = _Cache(partial(_log_millis, zone=zone))
        self.clients = _Cache(_client)

    def parse(self, lines: bytes, reject: Callable[[int, str, bytes], None]) -> list[Access]:
        """Return the accesses of lines that end in a newline each; call reject(index, reason, line) else."""
        times, clients = self.times, self.clients
        accesses: list[Access] = []
        keep = accesses.append
        texts: list[bytes] = []
        for index, (millis, address, client, stamp) in enumerate(_LINE.findall(lines)):
            try:
                if stamp:
                    keep((times[stamp], clients[client]))
                    continue
                if millis:
                    keep((_epoch_millis(millis), clients[address]))
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
        if len(self) >= CACHE_SIZE:
            self.clear()
        self[key] = value
        return value


def _why_unmatched(line: bytes) -> str:
    text = line.removeprefix(b"\xef\xbb\xbf")
    if not text.strip():
        return "empty line"
    try:
        text.decode()
    except UnicodeDecodeError:
        return "not text"
    return "not text" if _CONTROL.search(text) else "unknown format"


def _epoch_millis(digits: bytes) -> int:
    if len(digits) <= 15 and 0 <= (millis := int(digits)) < END_OF_TIME:
        return millis
    raise BadLine("bad time", digits)


def _log_millis(stamp: bytes, zone: tzinfo) -> int:
    match = _STAMP.fullmatch(stamp)
    if not match:
        raise BadLine("bad time", stamp)
    day, month, year, hour, minute, second, sign, hours, minutes = match.groups()
    try:
        if sign:
            offset = timedelta(hours=int(hours), minutes=int(minutes))
            zone = timezone(-offset if sign == b"-" else offset)
        clock = map(int, (year, _MONTHS.get(month, 0), day, hour, minute, second))
        since_epoch = datetime(*clock, tzinfo=zone) - datetime(1970, 1, 1, tzinfo=UTC)
    except (ValueError, OverflowError):
        raise BadLine("bad time", stamp) from None
    millis = since_epoch // timedelta(milliseconds=1)
    if not 0 <= millis < END_OF_TIME:
        raise BadLine("bad time", stamp)
    return millis


def _client(raw: bytes) -> str:
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


def _blocks(stream: BinaryIO, name: str) -> Iterator[bytes]:
    """Yield the text of a stream, plain or gzip, in blocks of at most MAX_LINE bytes."""
    try:
        head = stream.read(2)
        blocks = chain([head], iter(partial(stream.read1, MAX_LINE), b""))
        yield from _gunzip(blocks) if head == b"\x1f\x8b" else blocks
    except OSError as error:
        raise _unreadable(name, error) from error


def _gunzip(blocks: Iterable[bytes]) -> Iterator[bytes]:
    """Yield all that can be read of gzip members; raise BadLine where they are damaged or end too early."""
    member = None
    for block in blocks:
        while block:
            if member is None:
                block = block.lstrip(b"\0")  # padding after a member
                member = zlib.decompressobj(wbits=31) if block else None
                continue
            before = member.copy()
            try:
                yield member.decompress(block, MAX_LINE)
            except zlib.error:
                yield b"".join(_up_to_damage(before, block))
                raise BadLine("corrupt gzip") from None
            block = member.unconsumed_tail
            if member.eof:
                block, member = member.unused_data, None
    if member:
        yield member.flush()
        raise BadLine("truncated gzip")


def _up_to_damage(member, block: bytes) -> Iterator[bytes]:
    # zlib drops what it had read of a block when it meets damage; byte by byte nothing is lost.
    try:
        for byte in block:
            yield member.decompress(bytes([byte]))
    except zlib.error:
        return


def _whole_lines(blocks: Iterable[bytes]) -> Iterator[bytes]:
    """Yield blocks of whole lines, a last line completed by a newline.

    No block is longer than MAX_LINE, so only the first line of what is yielded can be; it may be cut, but
    not to less than MAX_LINE + 1 bytes. A BadLine raised by `blocks` gets the line that it interrupted.
    """
    start = b""  # of a line whose end is not read yet
    skipping = False  # the rest of a line already yielded
    try:
        for block in blocks:
            if skipping:
                _, newline, block = block.partition(b"\n")
                skipping = not newline
            start += block
            end = start.rfind(b"\n") + 1
            if end:
                yield start[:end]
                start = start[end:]
            if len(start) > MAX_LINE:
                yield start[: MAX_LINE + 1] + b"\n"
                start, skipping = b"", True
    except BadLine as damage:
        raise BadLine(damage.reason, start) from None
    if start:
        yield start + b"\n"
