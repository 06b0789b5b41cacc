"""Record batches are what other implementations of the format write and read: kafka-python's, and Kafka's own in Java.

Cutting keeps every row, in order, and within the bound.
"""

from __future__ import annotations

import itertools
import random
from typing import NamedTuple

import numpy as np
import pyarrow
import pyarrow.compute as pc
import pytest
from kafka.record.default_records import DefaultRecordBatch, DefaultRecordBatchBuilder
from kafka.record.util import encode_varint

from exactly_once_kafka.compression import CODECS
from exactly_once_kafka.record_batch import ProducerId, cut, encode
from exactly_once_kafka.records import varints

PRODUCER = ProducerId(id=4_000_000_007, epoch=12)
SEQUENCE, NOW_MS = 41, 1_800_000_000_123
# A length is one byte longer from these on: 64, 8192, 1 MiB.
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
    no_headers = itertools.cycle([[], None])
    dicts = [[{"key": k, "value": v} for k, v in row.headers] or next(no_headers) for row in rows]
    return pyarrow.record_batch(
        {
            "key": pyarrow.array([row.key for row in rows], binary),
            "value": pyarrow.array([row.value for row in rows], binary),
            "headers": pyarrow.array(dicts, headers),
        }
    )


def of_kafka_python(rows: list[Row]) -> bytes:
    """Encode the rows by kafka-python, one by one."""
    builder = DefaultRecordBatchBuilder(2, 0, True, *PRODUCER, SEQUENCE, batch_size=1 << 30)
    for offset, row in enumerate(rows):
        assert builder.append(offset, NOW_MS, row.key, row.value, row.headers)
    return bytes(builder.build())


def read(batch: bytes) -> list[Row]:
    """Decode a batch by kafka-python."""
    decoded = DefaultRecordBatch(batch)
    assert decoded.validate_crc()
    assert decoded.size_in_bytes == len(batch)
    records = list(decoded)
    assert [record.offset for record in records] == list(range(len(records)))
    assert {record.timestamp for record in records} == {NOW_MS}
    return [Row(record.key, record.value, record.headers) for record in records]


def tagged(rows: list[Row], tags: Headers, of_last: Headers = []) -> list[Row]:  # noqa: B006
    with_tags = [row._replace(headers=[*row.headers, *tags]) for row in rows]
    return [*with_tags[:-1], with_tags[-1]._replace(headers=[*with_tags[-1].headers, *of_last])]


@pytest.mark.parametrize("seed", range(5))
def test_bytes_are_those_of_kafka_python(seed):
    rows = random_rows(seed, 300)
    assert encode(arrow(rows), PRODUCER, SEQUENCE, NOW_MS) == of_kafka_python(rows)


def test_tags_are_headers_behind_the_rows_own():
    rows = random_rows(5, 300)
    batch = encode(arrow(rows), PRODUCER, SEQUENCE, NOW_MS, tags=TAGS, tags_of_last=OF_LAST)
    assert batch == of_kafka_python(tagged(rows, TAGS, OF_LAST))


@pytest.mark.parametrize("count", [1, 2, 300])
def test_tags_where_rows_have_no_headers(count):
    rows = [Row(b"k", b"v")] * count
    batch = encode(arrow(rows).drop_columns(["headers"]), PRODUCER, SEQUENCE, NOW_MS, tags=TAGS, tags_of_last=OF_LAST)
    assert batch == of_kafka_python(tagged(rows, TAGS, OF_LAST))


def test_a_tag_without_a_value():
    batch = encode(arrow([Row(b"k")]), PRODUCER, SEQUENCE, NOW_MS, tags=[("größe", None)])
    assert read(batch) == [Row(b"k", None, [("größe", None)])]


def test_lengths_of_more_than_a_mebibyte():
    rows = [Row(b"a", bytes((1 << 20) + i), [("x", bytes((1 << 20) - 1 - i))]) for i in range(2)]
    assert encode(arrow(rows), PRODUCER, SEQUENCE, NOW_MS) == of_kafka_python(rows)


def test_varints_are_those_of_kafka_python():
    borders = [1 << bits for bits in (6, 13, 20, 27)]
    numbers = [-1, 0, 1, *(border + i for border in borders for i in (-1, 0, 1)), (1 << 31) - 1]
    expected = []
    for number in numbers:
        expected.append(bytearray())
        encode_varint(number, expected[-1].append)
    assert varints(np.array(numbers)).to_pylist() == [bytes(each) for each in expected]


@pytest.mark.parametrize("start", [0, 1, 7, 8, 123])
def test_slices_are_read_back(start):
    rows = random_rows(6, 300)
    batch = encode(arrow(rows).slice(start, 100), PRODUCER, SEQUENCE, NOW_MS, tags=TAGS)
    assert read(batch) == tagged(rows[start : start + 100], TAGS)


@pytest.mark.parametrize("column", [pyarrow.binary(), pyarrow.large_binary(), pyarrow.string(), pyarrow.large_string()])
@pytest.mark.parametrize("header_key", [pyarrow.binary(), pyarrow.string()])
@pytest.mark.parametrize("list_of", [pyarrow.list_, pyarrow.large_list])
def test_every_arrow_type(column, header_key, list_of):
    rows = [Row("é".encode(), None, [("é", b"\xff"), ("b", None)]), Row(None, b"text"), Row(b"", b"", [("", b"")])] * 5
    headers = list_of(pyarrow.struct({"key": header_key, "value": pyarrow.binary()}))
    batch = encode(arrow(rows, column, headers).slice(2), PRODUCER, SEQUENCE, NOW_MS)
    assert read(batch) == rows[2:]


def test_what_arrow_keeps_below_a_null_is_not_written():
    values, hidden = pyarrow.array([b"one", b"hidden", b"three"]), pyarrow.array([False, True, False])
    bitmap = pc.invert(hidden).buffers()[1]
    masked = pyarrow.Array.from_buffers(values.type, 3, [bitmap, *values.buffers()[1:]])
    headers = pyarrow.array([[{"key": "a", "value": b"1"}], [{"key": "hidden"}], [{"key": "c"}]], HEADERS)
    masked_headers = pyarrow.ListArray.from_arrays(headers.offsets, headers.values, mask=hidden)
    batch = encode(
        pyarrow.record_batch({"value": masked, "key": masked, "headers": masked_headers}), PRODUCER, SEQUENCE, NOW_MS
    )
    assert read(batch) == [Row(b"one", b"one", [("a", b"1")]), Row(), Row(b"three", b"three", [("c", None)])]


@pytest.mark.parametrize("present", [[], ["key"], ["value"], ["headers"], ["key", "value"]])
def test_an_absent_column_is_null(present):
    rows = random_rows(7, 50)
    expected = [Row(**{name: getattr(row, name) for name in present}) for row in rows]
    columns = arrow(rows).append_column("partition", pyarrow.array([3] * 50)).select([*present, "partition"])
    assert read(encode(columns, PRODUCER, SEQUENCE, NOW_MS)) == expected


def test_fields_of_the_batch():
    batch = DefaultRecordBatch(encode(arrow(random_rows(8, 9)), PRODUCER, SEQUENCE, NOW_MS))
    assert batch.is_transactional
    assert not batch.is_control_batch
    assert (batch.magic, batch.base_offset, batch.last_offset_delta, batch.records_count) == (2, 0, 8, 9)
    assert (batch.first_timestamp, batch.max_timestamp, batch.timestamp_type) == (NOW_MS, NOW_MS, 0)
    assert (batch.producer_id, batch.producer_epoch, batch.base_sequence) == (*PRODUCER, SEQUENCE)


@pytest.mark.parametrize(
    ("written", "first", "last"),
    [(2**31 - 1, 2**31 - 1, 1), (2**31 - 2, 2**31 - 2, 0), (2**31, 0, 2), (2**33 + 5, 5, 7)],
)
def test_after_2_to_the_31_records_the_sequence_starts_anew(written, first, last):
    batch = DefaultRecordBatch(encode(arrow([Row(value=b"v")] * 3), PRODUCER, written, NOW_MS))
    assert (batch.base_sequence, batch.last_sequence) == (first, last)


def test_refuses_no_rows():
    with pytest.raises(ValueError, match="no rows"):
        encode(arrow([]), PRODUCER, SEQUENCE, NOW_MS)


@pytest.mark.parametrize(
    ("headers", "found"), [([None], "an element is null"), ([{"key": None, "value": b"v"}], "a header's key is null")]
)
def test_refuses_a_header_that_is_null_or_has_no_key(headers, found):
    rows = pyarrow.record_batch({"value": [b"v"], "headers": pyarrow.array([headers], HEADERS)})
    with pytest.raises(ValueError, match=found):
        encode(rows, PRODUCER, SEQUENCE, NOW_MS)
    with pytest.raises(ValueError, match=found):
        list(cut(rows))


def test_refuses_a_codec_that_kafka_does_not_know():
    with pytest.raises(ValueError, match="'brotli'; Kafka knows none, gzip, snappy, lz4, zstd"):
        encode(arrow([Row()]), PRODUCER, SEQUENCE, NOW_MS, compression="brotli")


def _each(iterable):
    iterator = iterable.iterator()
    while iterator.hasNext():
        yield iterator.next()


def read_by_java(spark, batch: bytes) -> tuple[object, list[Row]]:
    """Decode a batch by Kafka's own Java code, as its broker and its consumers do: return the batch and its rows."""
    jvm = spark._jvm
    records = jvm.org.apache.kafka.common.record.MemoryRecords.readableRecords(jvm.java.nio.ByteBuffer.wrap(batch))
    [decoded] = _each(records.batches())
    decoded.ensureValid()
    bytes_of = jvm.org.apache.kafka.common.utils.Utils.toNullableArray
    rows = []
    for record in _each(decoded):
        record.ensureValid()
        headers = [(header.key(), header.value()) for header in record.headers()]
        rows.append(Row(bytes_of(record.key()), bytes_of(record.value()), headers))
    return decoded, rows


@pytest.mark.parametrize("codec", CODECS)
def test_java_reads_the_rows(spark, codec):
    rows = [
        *random_rows(9, 30),
        Row(b"does not compress", random.Random(9).randbytes(200_000)),
        Row(b"does", bytes(200_000)),
    ]
    options = {"tags": TAGS, "tags_of_last": OF_LAST}
    batch = encode(arrow(rows), PRODUCER, 2**31 - 1, NOW_MS, **options, compression=codec)
    decoded, found = read_by_java(spark, batch)
    assert found == tagged(rows, TAGS, OF_LAST)
    assert decoded.compressionType().toString() == codec
    assert decoded.isTransactional()
    assert (decoded.producerId(), decoded.producerEpoch()) == PRODUCER
    assert (decoded.baseSequence(), decoded.lastSequence()) == (2**31 - 1, len(rows) - 2)
    assert (decoded.baseOffset(), decoded.lastOffset(), decoded.maxTimestamp()) == (0, len(rows) - 1, NOW_MS)
    saved = len(encode(arrow(rows), PRODUCER, 2**31 - 1, NOW_MS, **options)) - len(batch)
    assert saved == 0 if codec == "none" else saved > 190_000


@pytest.mark.parametrize("codec", ["gzip", "zstd", "lz4", "snappy"])
def test_one_record_that_is_next_to_nothing_is_compressed_too(spark, codec):
    _, found = read_by_java(spark, encode(arrow([Row()]), PRODUCER, 0, NOW_MS, compression=codec))
    assert found == [Row()]


@pytest.mark.parametrize("seed", range(3))
def test_pieces_are_within_the_bound_and_nothing_is_lost(seed):
    rows, largest = [row for row in random_rows(seed, 1000) if len(row.headers) < 70], 70_000
    pieces = list(cut(arrow(rows), [*TAGS, *OF_LAST], largest))
    batches = [encode(piece, PRODUCER, 0, NOW_MS, tags=TAGS, tags_of_last=OF_LAST) for piece in pieces]
    assert max(map(len, batches)) <= largest
    assert sum(map(len, batches)) > 0.8 * largest * (len(batches) - 1), "they could be fuller"
    expected = iter(rows)
    for piece, batch in zip(pieces, batches, strict=True):
        assert read(batch) == tagged(list(itertools.islice(expected, piece.num_rows)), TAGS, OF_LAST)
    assert next(expected, None) is None


def test_pieces_of_a_slice():
    rows = random_rows(3, 300)
    pieces = cut(arrow(rows).slice(100, 150), largest=20_000)
    assert [row for piece in pieces for row in read(encode(piece, PRODUCER, 0, NOW_MS))] == rows[100:250]


def test_a_row_larger_than_the_bound_stands_alone():
    sizes = [10, 10, 5000, 10, 5000, 5000, 10]
    pieces = cut(arrow([Row(value=bytes(size)) for size in sizes]), largest=1000)
    assert [[len(value) for value in piece["value"].to_pylist()] for piece in pieces] == [
        *([10, 10], [5000], [10], [5000], [5000], [10])
    ]


def test_pieces_are_of_some_thousand_records_at_most():
    pieces = cut(pyarrow.record_batch({"value": [b""] * 20_001}), most_records=8000)
    assert [piece.num_rows for piece in pieces] == [8000, 8000, 4001]


@pytest.mark.parametrize("most_records", [1, 2])
def test_no_rows_are_no_pieces(most_records):
    assert list(cut(arrow([]), most_records=most_records)) == []
