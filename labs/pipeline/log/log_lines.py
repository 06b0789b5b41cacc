"""The lines of a log, plain or gzip, from a file or standard input, in bounded memory whatever the bytes.

Guarantee: everything that can be read before the damage in a gzip is yielded. It stops at damage that
unpacks to other text: the checksum at the end tells that there is some, not where.
"""

from __future__ import annotations

import os
import stat
import sys
import zlib
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from io import BufferedReader
from itertools import chain
from typing import cast

from labs.pipeline.log.log_report import BadLine

MAX_LINE = 64 * 1024  # bytes, without the newline


class LogUnreadable(OSError):
    """A log cannot be opened or read at all."""


def check_readable(name: str) -> None:
    """Raise LogUnreadable if a path (`-`: standard input) cannot be read.

    Looks without opening: a named pipe can be opened only once.
    """
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


def whole_lines(name: str) -> Iterator[bytes]:
    """Yield blocks of whole lines of the log at a path, as `_whole_lines` describes them."""
    with _open(name) as stream:
        yield from _whole_lines(_blocks(stream, name))


def _open(name: str) -> AbstractContextManager[BufferedReader]:
    if name == "-":
        return nullcontext(cast(BufferedReader, sys.stdin.buffer))
    try:
        return open(name, "rb")
    except OSError as error:
        raise _unreadable(name, error) from error


def _blocks(stream: BufferedReader, name: str) -> Iterator[bytes]:
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


def _up_to_damage(member: zlib._Decompress, block: bytes) -> Iterator[bytes]:
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
