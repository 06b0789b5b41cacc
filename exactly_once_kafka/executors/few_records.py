"""The records of a few rows, made one by one: the same bytes that records.py makes, which for so few takes longer.

Arrow takes as long for one record as for hundreds: half a millisecond, where the processor has other things in its
caches. A small batch would wait for that twice, for its rows and for its marker.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Sequence
from typing import cast

import pyarrow

Tags = Sequence[tuple[str, bytes | None]]  # headers that every record has behind its own

FEW = 300  # rows; beyond that Arrow is faster


def encode_few(rows: pyarrow.RecordBatch, tags: Tags, first: int) -> bytes:
    """Return rows without headers of their own as records; the offset delta of the first one is `first`."""
    headers = varint(len(tags)) + encode_tags(tags)
    encoded = list[bytes]()
    for offset_delta, key, value in zip(itertools.count(first), _column(rows, "key"), _column(rows, "value")):
        record = b"".join((b"\0\0", varint(offset_delta), with_length(key), with_length(value), headers))
        encoded += varint(len(record)), record
    return b"".join(encoded)


def encode_tags(tags: Tags) -> bytes:
    """Return the headers, without their number."""
    return b"".join(with_length(of) for name, value in tags for of in (name.encode(), value))


@functools.lru_cache(1 << 14)
def varint(number: int) -> bytes:
    """Return a number of -1 to 2^31 - 1 as a varint."""
    zigzag, groups = (number << 1) ^ (number >> 63), bytearray()
    while zigzag > 0x7F:
        groups.append(zigzag & 0x7F | 0x80)  # more follow
        zigzag >>= 7
    return bytes([*groups, zigzag])


def with_length(of: bytes | None) -> bytes:
    """Return a key or a value with its length before it, which is -1 for null."""
    return varint(-1) if of is None else varint(len(of)) + of


def _column(rows: pyarrow.RecordBatch, name: str) -> list[bytes | None]:
    if name not in rows.schema.names:
        return [None] * rows.num_rows
    column = rows.column(name)
    as_bytes = column if pyarrow.types.is_binary(column.type) else column.cast(pyarrow.large_binary())
    return cast(list[bytes | None], as_bytes.to_pylist())
