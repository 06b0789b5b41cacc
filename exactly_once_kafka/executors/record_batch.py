"""Arrow rows as Kafka record batches of the format's version 2, transactional.

No client of Kafka writes under a producer id and epoch that were given to somebody else, so whoever is to take part in
another process's transaction makes the record batches. One of them, big-endian:

    bytes  field                   here
    8      base offset             0: the broker sets it
    4      length                  bytes of what follows
    4      partition leader epoch  0: the broker sets it
    1      magic                   2
    4      CRC                     CRC-32C of what follows
    2      attributes              bits 0 to 2: codec; bit 4: in a transaction
    4      last offset delta       number of records - 1
    8      base timestamp          milliseconds since 1970
    8      max timestamp           the same: all records have one timestamp
    8      producer id
    2      producer epoch
    4      base sequence           records that this id and epoch wrote to the partition before, modulo 2^31
    4      number of records
           records                 see records.py; compressed as a whole

Where it stops: a broker takes only the sequence that comes next, so a partition has one writer at a time, who counts.
Source: https://kafka.apache.org/documentation/#recordbatch
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import NamedTuple

import google_crc32c
import numpy as np
import pyarrow

from exactly_once_kafka.executors.compression import CODECS, compress
from exactly_once_kafka.executors.few_records import Tags
from exactly_once_kafka.executors.records import encode_records, most_bytes, most_bytes_of_all

BEFORE_LENGTH, BEFORE_CRC, CRC, AFTER_CRC = (struct.Struct(f">{fields}") for fields in ("qi", "ib", "I", "hiqqqhii"))
OVERHEAD = sum(part.size for part in (BEFORE_LENGTH, BEFORE_CRC, CRC, AFTER_CRC))  # bytes of a batch beside its records
MAGIC, TRANSACTIONAL = 2, 1 << 4
SEQUENCES = 1 << 31

# A broker takes 1,048,588 bytes, unless max.message.bytes is set; what cannot be compressed grows a little.
LARGEST, MOST_RECORDS = 900_000, 8192


class ProducerId(NamedTuple):
    """The producer that the broker takes a batch to be from."""

    id: int
    epoch: int


def encode(
    rows: pyarrow.RecordBatch,
    producer: ProducerId,
    base_sequence: int,
    timestamp_ms: int,
    *,
    tags: Tags = (),
    tags_of_last: Tags = (),
    compression: str = "none",
) -> bytes:
    """Return the rows, which are all for one partition, as one record batch.

    `tags` are headers that every record gets behind its own, and `tags_of_last` follow them in the last record.
    `base_sequence` is taken modulo 2^31. Raises ValueError for no rows, a header without a key, and a codec that is
    not one of CODECS.
    """
    count = rows.num_rows
    if not count:
        raise ValueError("Kafka has no record batch without records, and there are no rows: leave it out")
    if tags_of_last:
        last = encode_records(rows.slice(count - 1), [*tags, *tags_of_last], first=count - 1)
        records = pyarrow.py_buffer(b"".join((encode_records(rows.slice(0, count - 1), tags), last)))
    else:
        records = encode_records(rows, tags)
    payload = compress(records, compression)
    after_crc = AFTER_CRC.pack(
        TRANSACTIONAL | CODECS[compression],
        count - 1,
        timestamp_ms,
        timestamp_ms,
        *producer,
        base_sequence % SEQUENCES,
        count,
    )
    crc = google_crc32c.extend(google_crc32c.value(after_crc), payload)
    rest = BEFORE_CRC.pack(0, MAGIC), CRC.pack(crc), after_crc, payload
    return b"".join((BEFORE_LENGTH.pack(0, sum(map(len, rest))), *rest))


def cut(
    rows: pyarrow.RecordBatch, tags: Tags = (), largest: int = LARGEST, most_records: int = MOST_RECORDS
) -> Iterator[pyarrow.RecordBatch]:
    """Yield the rows in pieces, in order, that are at most `largest` bytes as a record batch that is not compressed.

    `tags` are all that a record may get, those of the last one too. A row too large for the bound is a piece of its
    own: whether it is too large for Kafka is for the broker to say.
    """
    plain = "headers" not in rows.schema.names
    if plain and 0 < rows.num_rows <= most_records and most_bytes_of_all(rows, tags) <= largest - OVERHEAD:
        yield rows
        return
    ends = np.cumsum(most_bytes(rows, tags))
    start, before = 0, 0
    while start < rows.num_rows:
        fitting = int(np.searchsorted(ends, before + largest - OVERHEAD, side="right"))
        end = min(max(fitting, start + 1), start + most_records)
        yield rows.slice(start, end - start)
        start, before = end, ends[end - 1]
