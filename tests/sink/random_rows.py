"""Rows for Kafka, drawn at random, and as Arrow has them; and records read back by kafka-python."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator
from typing import Any, NamedTuple

import pyarrow
from kafka.record.default_records import DefaultRecordBatch

from exactly_once_kafka.kafka_client.record_batch import ProducerId, Tags

PRODUCER = ProducerId(id=4_000_000_007, epoch=12)
SEQUENCE, NOW_MS = 41, 1_800_000_000_123
# A length's varint grows by a byte at 64, 8192 and 2^20.
LENGTHS = [0, 1, 2, 50, 62, 63, 64, 65, 500]
LONG = [8190, 8191, 8192, 8193]
TAGS = [("batch_id", b"17"), ("attempt", b"0")]
OF_LAST = [("batch_rows", b"300")]

Headers = list[tuple[str, bytes | None]]
BINARY = pyarrow.binary()
HEADERS = pyarrow.list_(pyarrow.struct({"key": pyarrow.string(), "value": BINARY}))


class Row(NamedTuple):
    key: bytes | None = None
    value: bytes | None = None
    headers: Headers = []  # noqa: RUF012


def random_rows(seed: int, count: int) -> list[Row]:
    """Return rows with and without keys, values and headers; lengths lie around those where a varint grows."""
    draw = random.Random(seed)

    def some_bytes() -> bytes | None:
        length = draw.choice(LONG if draw.random() < 0.05 else LENGTHS)
        return None if draw.random() < 0.15 else draw.randbytes(length)

    def header() -> tuple[str, bytes | None]:
        return draw.choice(["", "trace", "größe", "鍵" * 21 + "a", "x" * 64]), some_bytes()

    return [
        Row(some_bytes(), some_bytes(), [header() for _ in range(draw.choice([0, 0, 1, 2, 70]))]) for _ in range(count)
    ]


def arrow(
    rows: list[Row], binary: pyarrow.DataType = BINARY, headers: pyarrow.DataType = HEADERS
) -> pyarrow.RecordBatch:
    """Return the rows as Spark hands them over; no headers are an empty list or null, by turns."""
    no_headers: Iterator[Any] = itertools.cycle([[], None])
    dicts = [[{"key": k, "value": v} for k, v in row.headers] or next(no_headers) for row in rows]
    return pyarrow.record_batch(
        {
            "key": pyarrow.array([row.key for row in rows], binary),
            "value": pyarrow.array([row.value for row in rows], binary),
            "headers": pyarrow.array(dicts, headers),
        }
    )


def read(batch: bytes) -> list[Row]:
    """Decode a batch by kafka-python."""
    decoded = DefaultRecordBatch(batch)
    assert decoded.validate_crc()
    assert decoded.size_in_bytes == len(batch)
    records = list(decoded)
    assert [record.offset for record in records] == list(range(len(records)))
    assert {record.timestamp for record in records} == {NOW_MS}
    return [Row(record.key, record.value, record.headers) for record in records]


def tagged(rows: list[Row], tags: Tags, of_last: Tags = ()) -> list[Row]:
    with_tags = [row._replace(headers=[*row.headers, *tags]) for row in rows]
    return [*with_tags[:-1], with_tags[-1]._replace(headers=[*with_tags[-1].headers, *of_last])]
