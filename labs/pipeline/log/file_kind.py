"""What a file is that is no log in plain text: told by its first bytes, whatever its name.

Where it stops: gzip is told here too, but read elsewhere; what is not known by its first bytes is read as lines.
"""

from __future__ import annotations

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
    """Return the name of what begins with these bytes, or None: then its lines are to be read."""
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
