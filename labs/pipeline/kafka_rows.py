"""Rows with the columns of Spark's Kafka writer, turned into the arguments of `Producer.produce`."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator
from typing import Any

import pyarrow
from pyspark.sql import DataFrame
from pyspark.sql.types import BinaryType, StringType

Headers = list[tuple[str, bytes | None]]
KafkaRow = tuple[str, Any, Any, int, Headers]  # topic, value, key, partition (-1: by key), headers


def check_columns(rows: DataFrame, topic: str | None) -> None:
    """Raise ValueError unless the rows can be Kafka records."""
    types = {field.name: field.dataType for field in rows.schema.fields}
    needed = ["value"] if topic else ["value", "topic"]
    for column in needed:
        if column not in types:
            raise ValueError(f"the sink needs a column {column!r}; the rows have {', '.join(types)}")
    for column in ("key", "value"):
        if column in types and not isinstance(types[column], StringType | BinaryType):
            raise ValueError(
                f"column {column!r} must be string or binary, and is {types[column].simpleString()}: "
                "cast it, or use to_json"
            )


def kafka_rows(batches: Iterable[pyarrow.RecordBatch], topic: str | None) -> Iterator[KafkaRow]:
    """Yield one tuple per row. A `topic` given here overrides the column, as in Spark's writer."""
    for batch in batches:
        columns = {name: column.to_pylist() for name, column in zip(batch.schema.names, batch.columns, strict=True)}
        topics = itertools.repeat(topic) if topic else columns["topic"]
        keys = columns.get("key") or itertools.repeat(None)
        partitions = (-1 if p is None else p for p in columns.get("partition") or itertools.repeat(None))
        headers = map(_pairs, columns.get("headers") or itertools.repeat(None))
        yield from zip(topics, columns["value"], keys, partitions, headers, strict=False)


def _pairs(headers: list[dict] | None) -> Headers:
    return [(header["key"], header["value"]) for header in headers or ()]
