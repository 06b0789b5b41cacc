"""Arrow rows as the records of one Kafka record batch.

A record; a varint is zigzag, and a length of -1 stands for null:

    varint  length            bytes of what follows
    1 byte  attributes        0
    varint  timestamp delta   0: all records have the batch's timestamp
    varint  offset delta      place in the batch
    varint  length of the key, and the key
    varint  length of the value, and the value
    varint  number of headers, and for each:
            varint  length of its key, and the key (UTF-8, never null)
            varint  length of its value, and the value

All records are made at once, unless there are FEW: each field is an Arrow array with one element a record, and Arrow
joins them.

Rows are Arrow record batches with the columns `key` and `value` (binary or string) and `headers` (list<struct<key,
value>>). Others are ignored, and one that is absent is null in every row.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pyarrow
import pyarrow.compute as pc
from numpy.typing import NDArray

from exactly_once_kafka.executors.arrays import BINARY, Integers, binaries, integers, one
from exactly_once_kafka.executors.few_records import FEW, Tags, encode_few, encode_tags, varint

Field = Any  # a binary Arrow array with one element a record, or a scalar that all of them share

NOTHING, TWO_ZEROS, NULL = (one(of)[0] for of in (b"", b"\0\0", b"\1"))  # \1: the varint of -1
LONGEST_VARINT = 5  # bytes, for a number up to 2^31 - 1
JOIN = pc.JoinOptions(null_handling="replace", null_replacement="")


def encode_records(rows: pyarrow.RecordBatch, tags: Tags = (), first: int = 0) -> pyarrow.Buffer:
    """Return the rows as records, one behind the other; the offset delta of the first one is `first`.

    Raises ValueError for a header that is null or has no key.
    """
    if rows.num_rows <= FEW and "headers" not in rows.schema.names:
        return pyarrow.py_buffer(encode_few(rows, tags, first))
    columns = dict(zip(rows.schema.names, rows.columns, strict=True))
    fields = [
        TWO_ZEROS,  # attributes and timestamp delta
        varints(np.arange(first, first + rows.num_rows)),
        *_with_length(columns.get("key")),
        *_with_length(columns.get("value")),
        *_header_fields(columns.get("headers"), tags),
    ]
    lengths = np.zeros(rows.num_rows, np.int64)
    for field in fields:
        lengths += _length(field)
    return _bytes(_join(varints(lengths), *fields))


def most_bytes(rows: pyarrow.RecordBatch, tags: Tags = ()) -> Integers:
    """Return for each row a number of bytes that it does not exceed as a record. Raises as `encode_records`."""
    bytes_of_row = np.full(rows.num_rows, _most_bytes_around(tags))
    for name, column in zip(rows.schema.names, rows.columns, strict=True):
        if name in ("key", "value"):
            bytes_of_row += _length(column)
        elif name == "headers":
            headers = _Headers.of(column)
            bytes_of_header = 2 * LONGEST_VARINT + _length(headers.keys) + _length(headers.values)
            bytes_of_row += np.diff(_starts(bytes_of_header)[headers.starts])
    return bytes_of_row


def most_bytes_of_all(rows: pyarrow.RecordBatch, tags: Tags = ()) -> int:
    """Return a number of bytes, soon found, that rows without headers of their own do not exceed as records."""
    return int(rows.nbytes + rows.num_rows * _most_bytes_around(tags))


def _most_bytes_around(tags: Tags) -> int:
    """Return how much a record can have besides its key, its value, and its own headers."""
    tag_bytes = sum(2 * LONGEST_VARINT + len(name.encode()) + len(value or b"") for name, value in tags)
    return 2 + 5 * LONGEST_VARINT + tag_bytes


def varints(numbers: Integers) -> pyarrow.Array:
    """Return each number, of -1 to 2^31 - 1, as a varint."""
    zigzag = ((numbers << 1) ^ (numbers >> 63)).astype(np.uint32)
    longest = max(1, -(-int(zigzag.max(initial=0)).bit_length() // 7))
    if longest == 1:
        return binaries(np.arange(len(numbers) + 1), pyarrow.py_buffer(zigzag.astype(np.uint8)))
    size = np.ones(len(numbers), np.uint8)
    for bits in range(7, 7 * longest, 7):
        size += zigzag >> bits != 0
    padded, used = np.empty((len(numbers), longest), np.uint8), np.empty((len(numbers), longest), np.bool_)
    for place in range(longest):
        padded[:, place] = zigzag >> 7 * place | 0x80  # more follow
        used[:, place] = place < size
    starts, data = _starts(size), padded[used]
    data[starts[1:] - 1] &= 0x7F  # none follows the last
    return binaries(starts, pyarrow.py_buffer(data))


class _Headers(NamedTuple):
    """The headers of all rows, and where those of each row start: one number more than there are rows."""

    keys: pyarrow.Array
    values: pyarrow.Array
    starts: Integers

    @classmethod
    def of(cls, column: pyarrow.Array) -> _Headers:
        headers = column.flatten()
        keys, values = headers.flatten()
        if headers.null_count or keys.null_count:
            found = "an element" if headers.null_count else "a header's key"
            raise ValueError(f"column 'headers': {found} is null in a row, and Kafka has no such header: filter it out")
        count = integers(pc.list_value_length(column), of_null=0)
        return cls(keys.cast(BINARY), values.cast(BINARY), _starts(count))


def _header_fields(column: pyarrow.Array | None, tags: Tags) -> list[Field]:
    encoded_tags = encode_tags(tags)
    if column is None:
        return [one(varint(len(tags)) + encoded_tags)[0]]
    headers = _Headers.of(column)
    encoded = _join(*_with_length(headers.keys), *_with_length(headers.values))
    of_row = binaries(_offsets(encoded)[headers.starts], encoded.buffers()[2])
    return [varints(np.diff(headers.starts) + len(tags)), of_row, one(encoded_tags)[0]]


def _with_length(column: pyarrow.Array | None) -> list[Field]:
    if column is None:
        return [NULL]
    column = column.cast(BINARY)
    return [varints(_length(column, of_null=-1)), column]


def _length(field: Field, of_null: int = 0) -> Any:
    """Return the bytes of each element, or of the one that all records share."""
    if isinstance(field, pyarrow.Scalar):
        return len(field.as_buffer())
    return integers(pc.binary_length(field), of_null)


def _join(*fields: Field) -> pyarrow.Array:
    return pc.binary_join_element_wise(*fields, NOTHING, options=JOIN)


def _starts(sizes: NDArray[np.integer[Any]]) -> Integers:
    return np.concatenate(([0], np.cumsum(sizes, dtype=np.int64)))


def _offsets(binary: pyarrow.Array) -> Integers:
    return np.frombuffer(binary.buffers()[1], np.int64, len(binary) + 1)


def _bytes(binary: pyarrow.Array) -> pyarrow.Buffer:
    return binary.buffers()[2].slice(0, _offsets(binary)[-1])
