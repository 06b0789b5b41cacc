"""Kafka's codecs for the records of a batch, made of those that Arrow brings along.

LZ4 is framed here, because Arrow's own frame links its blocks, and Kafka's Java code takes independent ones only.
"""

from __future__ import annotations

import struct

import pyarrow

CODECS = {"none": 0, "gzip": 1, "snappy": 2, "lz4": 3, "zstd": 4}  # as in a record batch's attributes
LEVELS = {"gzip": 6, "zstd": 3}  # what Kafka's clients choose; Arrow's gzip would take five times as long

LZ4_BLOCK = 64 << 10  # bytes
# Magic, version 1 with independent blocks and no sums, blocks of 64 KiB at most, and the header's own sum.
LZ4_HEADER, LZ4_END = bytes.fromhex("04224d18 60 40 82"), bytes(4)
LZ4_STORED = 1 << 31  # a block that is not compressed
SNAPPY_HEADER = b"\x82SNAPPY\0" + struct.pack(">ii", 1, 1)  # of snappy-java's stream, which Kafka's is


def compress(records: pyarrow.Buffer, codec: str) -> pyarrow.Buffer | bytes:
    """Return the records compressed. Raises ValueError for a codec that is not one of CODECS."""
    if codec == "none":
        return records
    if codec == "lz4":
        return _lz4(records)
    if codec == "snappy":
        block = _compressed(records, "snappy")
        return SNAPPY_HEADER + struct.pack(">i", len(block)) + block
    if codec in CODECS:
        return _compressed(records, codec)
    raise ValueError(f"compression is {codec!r}; Kafka knows {', '.join(CODECS)}")


def _lz4(records: pyarrow.Buffer) -> bytes:
    frame = [LZ4_HEADER]
    for start in range(0, len(records), LZ4_BLOCK):
        block = records[start : start + LZ4_BLOCK]
        packed = _compressed(block, "lz4_raw")
        smaller = len(packed) < len(block)
        frame += [struct.pack("<I", len(packed) if smaller else len(block) | LZ4_STORED), packed if smaller else block]
    return b"".join((*frame, LZ4_END))


def _compressed(block: pyarrow.Buffer, codec: str) -> bytes:
    packed: bytes = pyarrow.Codec(codec, LEVELS.get(codec)).compress(block, asbytes=True)
    return packed
