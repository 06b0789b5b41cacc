"""Rows with the columns of Spark's Kafka writer, turned into the arguments of `Producer.produce`."""

from __future__ import annotations

import contextlib
import functools
import itertools
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import pyarrow
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame
from pyspark.sql.functions import col
from pyspark.sql.types import ArrayType, BinaryType, DataType, IntegerType, StringType, StructType

from exactly_once_kafka.arrow_rows import IN_MEMORY, ArrowRows
from exactly_once_kafka.errors import BatchFailed
from exactly_once_kafka.names import check_topic

Tags = Sequence[tuple[str, str]]
Headers = list[tuple[str, Any]]
KafkaRow = tuple[str, bytes | None, bytes | None, int, Headers | None]  # topic, value, key, partition (-1: by key), …

# Spark passes a string on as bytes, because Python could not decode one that is not valid UTF-8.
AS_BYTES = {
    "value": "binary",
    "key": "binary",
    "headers": "array<struct<key: binary, value: binary>>",
    "partition": "int",
    "topic": "binary",
}
BYTES_OF = {pyarrow.string(): pyarrow.binary(), pyarrow.large_string(): pyarrow.large_binary()}


def check_columns(rows: DataFrame, topic: str | None) -> None:
    """Raise ValueError unless the rows can be Kafka records. The types are those that Spark's own writer accepts."""
    types = {field.name: field.dataType for field in rows.schema.fields}
    check_case(types)
    needed = ["value"] if topic else ["value", "topic"]
    for column in needed:
        if column not in types:
            raise ValueError(f"the sink needs a column {column!r}; the rows have {', '.join(types)}")
    bytes_or_text = (StringType, BinaryType), "string or binary", "cast it, or use to_json"
    _expect(types, "value", *bytes_or_text)
    _expect(types, "key", *bytes_or_text)
    _expect(types, "partition", (IntegerType,), "int", "cast it")
    if not topic:
        _expect(types, "topic", (StringType,), "string", "cast it")
    headers = types.get("headers")
    if headers is not None and not _are_headers(headers):
        wanted = "array<struct<key:string,value:binary>>"
        raise ValueError(f"column 'headers' must be {wanted}, and is {headers.simpleString()}: cast it")


def check_case(columns: Iterable[str]) -> None:
    """Raise ValueError for a column that differs from one of Kafka's only in case: Spark would take it for the same."""
    for column in columns:
        if column not in AS_BYTES and column.lower() in AS_BYTES:
            raise ValueError(
                f"column {column!r} would not reach Kafka, where it is {column.lower()!r}: rename it, or drop it"
            )


def _expect(
    types: dict[str, DataType], column: str, wanted: tuple[type[DataType], ...], names: str, to_do: str
) -> None:
    found = types.get(column)
    if found is not None and not isinstance(found, wanted):
        raise ValueError(f"column {column!r} must be {names}, and is {found.simpleString()}: {to_do}")


def _are_headers(found: DataType) -> bool:
    if not (isinstance(found, ArrayType) and isinstance(found.elementType, StructType)):
        return False
    fields = [(field.name.lower(), type(field.dataType)) for field in found.elementType.fields]
    return fields == [("key", StringType), ("value", BinaryType)]


def as_bytes(rows: DataFrame, topic: str | None) -> DataFrame:
    """Keep the columns of a Kafka record, with every string as its bytes."""
    return rows.select(*(col(column).cast(AS_BYTES[column]).alias(column) for column in _columns(rows, topic)))


class BatchRows:
    """The rows of a micro-batch as Arrow batches, with the columns and types that `as_bytes` returns.

    Iterate over it once, or close it. The rows go to `topic`, or to the topics that they name. Arrow casts the strings
    to bytes, at no cost; the same cast in Spark takes as long as writing a small batch.
    """

    def __init__(self, rows: DataFrame, topic: str | None):
        self.rows, self.topic = rows, topic
        self._computed: ArrowRows | list[pyarrow.RecordBatch] | None = None

    def begin(self) -> None:
        """Start Spark's computation of the rows, unless it has begun; the caller can do something else meanwhile."""
        if not self.begun:
            self._computed = ArrowRows(self._needed())

    def begin_if_few(self, most: int) -> None:
        """Compute the rows now, and keep them if there are at most `most` and they fit in IN_MEMORY.

        Spark computes at most `most` + 1 rows. A failure counts as "too many": if the query itself fails, it fails
        again when all rows are computed.
        """
        computed, count, size = list[pyarrow.RecordBatch](), 0, 0
        with (
            contextlib.suppress(PySparkException, Py4JError, BatchFailed),
            contextlib.closing(ArrowRows(self._needed().limit(most + 1))) as arrow_batches,
        ):
            for arrow_batch in arrow_batches:
                computed.append(arrow_batch)
                count, size = count + arrow_batch.num_rows, size + arrow_batch.nbytes
                if count > most or size > IN_MEMORY:
                    return
            self._computed = computed

    def _needed(self) -> DataFrame:
        columns, rows = _columns(self.rows, self.topic), self.rows
        if "headers" in columns:
            return as_bytes(rows, self.topic)
        return rows.select(*columns) if len(columns) < len(rows.columns) else rows

    def __iter__(self) -> Iterator[pyarrow.RecordBatch]:
        self.begin()
        with contextlib.closing(self):
            for arrow_batch in self._computed or ():
                if any(type in BYTES_OF for type in arrow_batch.schema.types):
                    arrays = [array.cast(BYTES_OF.get(array.type, array.type)) for array in arrow_batch.columns]
                    arrow_batch = pyarrow.RecordBatch.from_arrays(arrays, arrow_batch.schema.names)
                yield arrow_batch

    @property
    def begun(self) -> bool:
        """Tell whether Spark computes the rows for the driver, or has done so."""
        return self._computed is not None

    def close(self) -> None:
        """Stop Spark's computation, if it has begun."""
        if isinstance(self._computed, ArrowRows):
            self._computed.close()


def _columns(rows: DataFrame, topic: str | None) -> list[str]:
    return [column for column in AS_BYTES if column in rows.columns and not (topic and column == "topic")]


def kafka_rows(
    arrow_batches: Iterable[pyarrow.RecordBatch], topic: str | None, tags: Tags = ()
) -> Iterator[Iterable[KafkaRow]]:
    """Yield the rows of each Arrow batch. If `topic` is given, all rows go there.

    `tags` are headers that every row gets besides its own; if there are any, the last row gets `batch_rows` too,
    the number of all rows. Raises ValueError for a null that a Kafka record cannot have.
    """
    of_all, count = list(tags), 0
    for arrow_batch, is_last in with_is_last(arrow_batches):
        count += arrow_batch.num_rows
        columns = {name: arrow_batch.column(name).to_pylist() for name in arrow_batch.schema.names}
        topics = itertools.repeat(topic) if topic else map(topic_of_row, columns["topic"])
        keys = columns.get("key") or itertools.repeat(None)
        partitions: Iterable[int] = itertools.repeat(-1)
        if "partition" in columns:
            partitions = (-1 if p is None else p for p in columns["partition"])
        headers: list[Headers | None] = [of_all or None] * arrow_batch.num_rows
        if "headers" in columns:
            headers = [_pairs(of_row) + of_all for of_row in columns["headers"]]
        if is_last and of_all:
            headers[-1] = [*(headers[-1] or ()), ("batch_rows", str(count))]
        yield zip(topics, columns["value"], keys, partitions, headers, strict=False)


def with_is_last(arrow_batches: Iterable[pyarrow.RecordBatch]) -> Iterator[tuple[pyarrow.RecordBatch, bool]]:
    """Yield each batch that has rows, and whether it is the last one."""
    filled = (each for each in arrow_batches if each.num_rows)
    waiting = next(filled, None)
    for arrow_batch in filled:
        yield waiting, False
        waiting = arrow_batch
    if waiting is not None:
        yield waiting, True


@functools.lru_cache(maxsize=1000)
def topic_of_row(topic: bytes | None) -> str:
    """Return the topic that a row names. Raises ValueError if it names none that Kafka could have."""
    if topic is None:
        raise ValueError(
            "column 'topic' is null in a row, and the sink has no topic of its own: fill it, or drop the row"
        )
    name = topic.decode(errors="replace")
    check_topic("column 'topic'", name)
    return name


def _pairs(headers: list[dict[str, bytes | None] | None] | None) -> Headers:
    return [_pair(header) for header in headers or ()]


def _pair(header: dict[str, bytes | None] | None) -> tuple[str, bytes | None]:
    if header is None or header["key"] is None:
        found = "an element" if header is None else "a header's key"
        raise ValueError(f"column 'headers': {found} is null in a row, and Kafka has no such header: filter it out")
    if b"\0" in header["key"]:
        raise ValueError("column 'headers': a header's key has a NUL in it, and librdkafka would cut it off there")
    return header["key"].decode(errors="replace"), header["value"]
