"""Rows with the columns of Spark's Kafka writer, turned into the arguments of `Producer.produce`."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator
from typing import Any

import pyarrow
from pyspark.sql import DataFrame
from pyspark.sql.types import BinaryType, StringType

Headers = list[tuple[str, bytes | None]]
KafkaRow = tuple[str, Any, Any, int, Headers | None]  # topic, value, key, partition (-1: by key), headers


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


def kafka_rows(batches: Iterable[pyarrow.RecordBatch], topic: str | None, tags: Headers = ()) -> Iterator[KafkaRow]:
    """Yield one tuple per row. A `topic` given here overrides the column, as in Spark's writer.

    `tags` are headers that every row gets besides its own; if there are any, the last row gets `batch_rows` too,
    the number of all rows.
    """
    tags, count = list(tags), 0
    for batch, is_last in _knowing_the_last(batch for batch in batches if batch.num_rows):
        count += batch.num_rows
        columns = {name: column.to_pylist() for name, column in zip(batch.schema.names, batch.columns, strict=True)}
        topics = itertools.repeat(topic) if topic else columns["topic"]
        keys = columns.get("key") or itertools.repeat(None)
        partitions = itertools.repeat(-1)
        if "partition" in columns:
            partitions = (-1 if p is None else p for p in columns["partition"])
        headers = [tags or None] * batch.num_rows
        if "headers" in columns:
            headers = [_pairs(of_row) + tags for of_row in columns["headers"]]
        if is_last and tags:
            headers[-1] = [*headers[-1], ("batch_rows", str(count))]
        yield from zip(topics, columns["value"], keys, partitions, headers, strict=False)


def _knowing_the_last(batches: Iterator[pyarrow.RecordBatch]) -> Iterator[tuple[pyarrow.RecordBatch, bool]]:
    waiting = next(batches, None)
    for batch in batches:
        yield waiting, False
        waiting = batch
    if waiting is not None:
        yield waiting, True


def _pairs(headers: list[dict] | None) -> Headers:
    return [(header["key"], header["value"]) for header in headers or ()]
