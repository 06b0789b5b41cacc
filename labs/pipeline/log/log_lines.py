"""The lines of a log, plain or gzip, from a file or standard input, in bounded memory whatever the bytes.

Guarantee: everything that can be read before the damage in a gzip is yielded. It stops at damage that
unpacks to other text: the checksum at the end tells that there is some, not where. NULs before a line are left out:
a log that is emptied while its server writes begins with a hole.
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
from typing import TextIO, cast

from labs.pipeline.log.file_kind import ENOUGH, GZIP, kind_of
from labs.pipeline.log.log_report import BadLine

MAX_LINE = 64 * 1024  # bytes, without the newline


class LogUnreadable(OSError):
    """A log cannot be opened or read at all."""


def check_readable(name: str) -> None:
    """Raise LogUnreadable if a path (`-`: standard input) cannot be read, or is no file and no pipe.

    Looks without opening: a named pipe can be opened only once.
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
    """Raise LogUnreadable if two of the names are one file, whose requests would be counted twice."""
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
    """Tell whether what is to be read is the file, or the pipe, that this process writes to."""
    if not (stat.S_ISREG(found.st_mode) or stat.S_ISFIFO(found.st_mode)):
        return False
    outputs = [_status(stream) for stream in (sys.stdout, sys.stderr)]
    return any(output and os.path.samestat(found, output) for output in outputs)


def _status(stream: TextIO | BufferedReader | None) -> os.stat_result | None:
    """Return the status of what is behind a stream; None where that is no file of the system's."""
    try:
        return os.fstat(stream.fileno()) if stream else None
    except (OSError, ValueError, AttributeError):
        return None


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
    """Yield the text of a stream, plain or gzip, in blocks of at most MAX_LINE bytes; raise BadLine if it is none."""
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
    """Tell whether a file ends before the place up to which it was read, as one does that was emptied meanwhile."""
    found = _status(stream)
    return found is not None and stat.S_ISREG(found.st_mode) and found.st_size < stream.tell()


def _with_head(blocks: Iterator[bytes]) -> tuple[bytes, Iterator[bytes]]:
    """Return the first ENOUGH bytes, or more, or all there are; and the blocks with those."""
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
