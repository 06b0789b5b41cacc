"""A row as Python's `foreach` gets it, turned into the arguments of `Producer.produce`."""

from __future__ import annotations

from typing import Any

from pyspark.sql import Row

from exactly_once_kafka.names import check_case

Headers = list[tuple[str, str | bytes | None]]
Record = tuple[str, bytes | None, bytes | None, int, Headers | None]  # topic, value, key, partition (-1: by key), …

SOURCE = "source"
TO_DO = 'select(…, struct("topic", "partition", "offset").alias("source")) right after the source'


def source_of(row: Row) -> tuple[str, int, int]:
    """Return topic, partition and offset of the source's record that the row was made of. Raises ValueError."""
    if SOURCE not in row:
        raise ValueError(f"the sink needs a column {SOURCE!r}; the rows have {', '.join(row.__fields__)}: {TO_DO}")
    source = row[SOURCE]
    try:
        return str(source["topic"]), int(source["partition"]), int(source["offset"])
    except (TypeError, ValueError, KeyError) as error:
        raise ValueError(
            f"column {SOURCE!r} must have topic, partition and offset, and is {source!r}: {TO_DO}"
        ) from error


def record_of(row: Row, topic: str | None) -> Record:
    """Return the Kafka record that the row is; a `topic` given here goes for all. Raises ValueError."""
    fields = row.asDict()
    check_case(tuple(fields))
    if "value" not in fields:
        raise ValueError(f"the sink needs a column 'value'; the rows have {', '.join(fields)}")
    topic = topic or fields.get("topic")
    if topic is None:
        raise ValueError("column 'topic' is missing or null in a row, and the sink has no topic of its own")
    partition, headers = fields.get("partition"), fields.get("headers")
    value, key = _bytes("value", fields["value"]), _bytes("key", fields.get("key"))
    return topic, value, key, -1 if partition is None else partition, headers and [_header(each) for each in headers]


def _bytes(column: str, value: Any) -> bytes | None:
    if value is None:
        return None
    if isinstance(value, str):
        return value.encode()
    if isinstance(value, bytes | bytearray):
        return bytes(value)
    raise ValueError(f"column {column!r} must be string or binary, and has {value!r:.40}: cast it, or use to_json")


def _header(header: Row | None) -> tuple[str, str | bytes | None]:
    if header is None or header["key"] is None:
        found = "an element" if header is None else "a header's key"
        raise ValueError(f"column 'headers': {found} is null in a row, and Kafka has no such header: filter it out")
    return header["key"], _bytes("headers", header["value"])
