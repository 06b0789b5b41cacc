"""Reads the lines of a log, plain or gzip, from a file or standard input, in bounded memory whatever the bytes.

Guarantee: everything in a gzip that comes before its damage is yielded. Limitations: damage that unpacks to other text
is yielded too; the checksum at the end shows that there is some, not where. NULs before a line are skipped: a log that
is emptied while its server writes begins with them.

The kind of a file is recognised by its first bytes, not by its name. A file of no known kind is read as lines.
"""

from __future__ import annotations

import os
import stat
import sys
import zlib
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from io import BufferedReader, UnsupportedOperation
from typing import TextIO, cast

from labs.pipeline.log.log_report import BadLine

ENOUGH = 512  # bytes: a tar archive's first header

GZIP = b"\x1f\x8b"
_BEGINNINGS = (
    (b"\xff\xfe\0\0", "UTF-32 text"),
    (b"\0\0\xfe\xff", "UTF-32 text"),
    (b"\xff\xfe", "UTF-16 text"),
    (b"\xfe\xff", "UTF-16 text"),
    (b"PK\x03\x04", "zip archive"),
    (b"PK\x05\x06", "zip archive"),
    (b"7z\xbc\xaf\x27\x1c", "7z archive"),
    (b"BZh", "bzip2"),
    (b"\xfd7zXZ\0", "xz"),
    (b"\x28\xb5\x2f\xfd", "zstd"),
    (b"\x04\x22\x4d\x18", "lz4"),
    (b"\x1f\x9d", "compress"),
    (GZIP, "gzip in a gzip"),
)


def kind_of(head: bytes) -> str | None:
    """Return the kind of a file that begins with these bytes, or None if it should be read as lines."""
    for beginning, name in _BEGINNINGS:
        if head.startswith(beginning):
            return name
    if _every_second_is_null(head):
        return "UTF-16 text"
    return "tar archive" if _is_tar(head) else None


def _every_second_is_null(head: bytes) -> bool:
    """Tell whether this is ASCII text in UTF-16 without a byte order mark."""
    even, odd = head[0:40:2], head[1:40:2]
    return len(odd) > 3 and any(
        text.isascii() and all(text) and not any(rest) for text, rest in ((even, odd), (odd, even))
    )


def _is_tar(head: bytes) -> bool:
    """Tell whether this is a header with the right checksum, which every kind of tar has."""
    if len(head) < ENOUGH:
        return False
    try:
        checksum = int(head[148:156].strip(b" \0"), 8)
    except ValueError:
        return False
    return checksum == sum(head[:148]) + 8 * ord(" ") + sum(head[156:ENOUGH])


MAX_LINE = 64 * 1024  # bytes, without the newline


class LogUnreadable(OSError):
    """A log cannot be opened or read at all."""


def check_readable(name: str) -> None:
    """Raise LogUnreadable if a path cannot be read, is neither a file nor a pipe, or is this command's own output.

    `-` is standard input, which may be of any kind. The file is not opened, since a named pipe can be opened only once.
    """
    if name == "-":
        if sys.stdin is None:
            raise LogUnreadable("cannot read standard input: it is closed")
        found = _status(sys.stdin)
        if found and _is_own_output(found):
            raise LogUnreadable("cannot read standard input: this command's output goes to the same file")
        return
    try:
        found = os.stat(name)
    except (OSError, ValueError) as error:
        raise _unreadable(name, error) from error
    if stat.S_ISDIR(found.st_mode):
        raise LogUnreadable(f"cannot read log {name!r}: it is a directory; name the files in it")
    if not (stat.S_ISREG(found.st_mode) or stat.S_ISFIFO(found.st_mode)):
        raise LogUnreadable(
            f"cannot read log {name!r}: it is {_device(found.st_mode)}{_target(name)}, expected a file or a pipe; "
            "to read what another program prints: docker logs web | python -m labs count -"
        )
    if _is_own_output(found):
        raise LogUnreadable(
            f"cannot read log {name!r}: it is where this command's own output goes{_target(name)}; send the output "
            "elsewhere, or read what another program prints: docker logs web | python -m labs count -"
        )
    if not os.access(name, os.R_OK):
        raise LogUnreadable(f"cannot read log {name!r}: permission denied; allow reading it, or use sudo")


def check_each_once(names: Iterable[str]) -> None:
    """Raise LogUnreadable if two names are the same file, whose requests would be counted twice."""
    seen = dict[tuple[int, int], str]()
    for name in names:
        found = _status(sys.stdin) if name == "-" else os.stat(name)
        if found is None:
            continue
        if first := seen.get(file := (found.st_dev, found.st_ino)):
            raise LogUnreadable(
                f"log {name!r} is the same file as {first!r}, and its requests would be counted twice; name it once"
            )
        seen[file] = name


def _device(mode: int) -> str:
    return "a socket" if stat.S_ISSOCK(mode) else "a block device" if stat.S_ISBLK(mode) else "a terminal or device"


def _target(name: str) -> str:
    return f" (a link to {os.readlink(name)!r})" if os.path.islink(name) else ""


def _is_own_output(found: os.stat_result) -> bool:
    """Tell whether this process writes to the file, or the pipe, that it would read."""
    if not (stat.S_ISREG(found.st_mode) or stat.S_ISFIFO(found.st_mode)):
        return False
    outputs = [_status(stream) for stream in (sys.stdout, sys.stderr)]
    return any(output and os.path.samestat(found, output) for output in outputs)


def _status(stream: TextIO | BufferedReader | None) -> os.stat_result | None:
    """Return the status of a stream's file; None if the stream is not a file of the operating system."""
    try:
        return os.fstat(stream.fileno()) if stream else None
    except (OSError, ValueError, AttributeError):
        return None


def _unreadable(name: str, error: Exception) -> LogUnreadable:
    cause = getattr(error, "strerror", None) or error
    return LogUnreadable(f"cannot read log {name!r}: {cause}; expected an access log, or - for standard input")


def whole_lines(name: str) -> Iterator[bytes]:
    """Yield blocks of whole lines of the log at a path, as `_whole_lines` does. Raises LogUnreadable, BadLine."""
    with _open(name) as stream:
        yield from _whole_lines(_blocks(stream, name))


def _open(name: str) -> AbstractContextManager[BufferedReader]:
    if name == "-":
        try:
            # Not sys.stdin's own reader: if a thread waited in it at the end of the program, Python would abort.
            return open(sys.stdin.fileno(), "rb", closefd=False)
        except UnsupportedOperation:  # it is not a file of the operating system
            return nullcontext(cast(BufferedReader, sys.stdin.buffer))
    try:
        return open(name, "rb")
    except OSError as error:
        raise _unreadable(name, error) from error


def _blocks(stream: BufferedReader, name: str) -> Iterator[bytes]:
    """Yield the text of a stream, plain or gzip, in blocks of at most MAX_LINE bytes; raise BadLine for other kinds."""
    try:
        head, blocks = _with_head(iter(partial(stream.read1, MAX_LINE), b""))
        if head.startswith(GZIP):
            head, blocks = _with_head(_gunzip(blocks))
        if kind := kind_of(head):
            raise BadLine(kind)
        yield from blocks
        if _was_shortened(stream):
            raise BadLine("shortened while it was read")
    except OSError as error:
        raise _unreadable(name, error) from error


def _was_shortened(stream: BufferedReader) -> bool:
    """Tell whether a file is shorter than what was read of it: somebody has emptied it meanwhile."""
    found = _status(stream)
    return found is not None and stat.S_ISREG(found.st_mode) and found.st_size < stream.tell()


def _with_head(blocks: Iterator[bytes]) -> tuple[bytes, Iterator[bytes]]:
    """Return the first ENOUGH bytes or more, or all there are; and all blocks, these bytes included."""
    first: list[bytes] = []
    damage = None
    try:
        while sum(map(len, first)) < ENOUGH and (block := next(blocks, None)) is not None:
            first.append(block)
    except BadLine as found:
        damage = found

    def again() -> Iterator[bytes]:
        yield from first
        if damage:
            raise damage
        yield from blocks

    return b"".join(first), again()


def _gunzip(blocks: Iterable[bytes]) -> Iterator[bytes]:
    """Yield what can be read of gzip members; raise BadLine if they are damaged or end too early."""
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


def _up_to_damage(member: zlib._Decompress, block: bytes) -> Iterator[bytes]:
    # When zlib finds damage, it drops what it had read of the block. If it is fed byte by byte, nothing is lost.
    try:
        for byte in block:
            yield member.decompress(bytes([byte]))
    except zlib.error:
        return


def _whole_lines(blocks: Iterable[bytes]) -> Iterator[bytes]:
    """Yield blocks of whole lines; a last line without a newline gets one.

    Input blocks have at most MAX_LINE bytes, so only the first line of a yielded block can be longer. It may be cut, to
    MAX_LINE + 1 bytes at least. A BadLine raised by `blocks` gets the line that it interrupted.
    """
    start = b""  # of a line whose end is not read yet
    skipping = False  # the rest of a line already yielded
    hole = False  # NULs were left out, and nothing has come after them yet
    try:
        for block in blocks:
            if skipping:
                _, newline, block = block.partition(b"\n")
                skipping = not newline
            start += block
            if start.startswith(b"\0"):
                start = start.lstrip(b"\0")
                hole = not start
            elif start:
                hole = False
            end = start.rfind(b"\n") + 1
            if end:
                yield start[:end]
                start = start[end:]
            if len(start) > MAX_LINE:
                yield start[: MAX_LINE + 1] + b"\n"
                start, skipping = b"", True
    except BadLine as damage:
        raise BadLine(damage.reason, start) from None
    if start or hole:
        yield start + b"\n"
