"""Record batches are byte for byte those of kafka-python, which it reads back: any rows, in any form that Arrow has."""

from __future__ import annotations

import numpy as np
import pyarrow
import pyarrow.compute as pc
import pytest
from kafka.record.default_records import DefaultRecordBatch, DefaultRecordBatchBuilder
from kafka.record.util import encode_varint

from exactly_once_kafka.kafka_client.record_batch import FEW, cut, encode, varint, varints
from tests.sink.random_rows import (
    HEADERS,
    NOW_MS,
    OF_LAST,
    PRODUCER,
    SEQUENCE,
    TAGS,
    Row,
    arrow,
    random_rows,
    read,
    tagged,
)


def of_kafka_python(rows: list[Row]) -> bytes:
    """Encode the rows by kafka-python, one by one."""
    builder = DefaultRecordBatchBuilder(2, 0, True, *PRODUCER, SEQUENCE, batch_size=1 << 30)
    for offset, row in enumerate(rows):
        assert builder.append(offset, NOW_MS, row.key, row.value, row.headers)
    return bytes(builder.build())


@pytest.mark.bench
@pytest.mark.parametrize("seed", range(5))
def test_bytes_are_those_of_kafka_python(seed):
    rows = random_rows(seed, 300)
    assert encode(arrow(rows), PRODUCER, SEQUENCE, NOW_MS) == of_kafka_python(rows)


@pytest.mark.bench
def test_tags_are_headers_behind_the_rows_own():
    rows = random_rows(5, 300)
    batch = encode(arrow(rows), PRODUCER, SEQUENCE, NOW_MS, tags=TAGS, tags_of_last=OF_LAST)
    assert batch == of_kafka_python(tagged(rows, TAGS, OF_LAST))


@pytest.mark.bench
@pytest.mark.parametrize("count", [1, 2, 300])
def test_tags_where_rows_have_no_headers(count):
    rows = [Row(b"k", b"v")] * count
    batch = encode(arrow(rows).drop_columns(["headers"]), PRODUCER, SEQUENCE, NOW_MS, tags=TAGS, tags_of_last=OF_LAST)
    assert batch == of_kafka_python(tagged(rows, TAGS, OF_LAST))


@pytest.mark.bench
@pytest.mark.parametrize("column", [pyarrow.binary(), pyarrow.large_binary(), pyarrow.string()])
@pytest.mark.parametrize("count", [1, FEW, FEW + 1])
def test_few_rows_are_the_same_bytes_as_many(count, column):
    keys = [b"k" * (n % 70) if n % 5 else None for n in range(count + 3)]
    rows = [Row(key, b"v" * (n * 37 % 9000) if n % 7 else None) for n, key in enumerate(keys)][3:]
    batch = arrow(rows, column).drop_columns(["headers"])
    tagged_rows = tagged(rows, TAGS, OF_LAST)
    assert encode(batch, PRODUCER, SEQUENCE, NOW_MS, tags=TAGS, tags_of_last=OF_LAST) == of_kafka_python(tagged_rows)
    assert encode(batch, PRODUCER, SEQUENCE, NOW_MS) == of_kafka_python(rows)


def test_a_tag_without_a_value():
    batch = encode(arrow([Row(b"k")]), PRODUCER, SEQUENCE, NOW_MS, tags=[("größe", None)])
    assert read(batch) == [Row(b"k", None, [("größe", None)])]


@pytest.mark.bench
def test_lengths_of_more_than_a_mebibyte():
    rows = [Row(b"a", bytes((1 << 20) + i), [("x", bytes((1 << 20) - 1 - i))]) for i in range(2)]
    assert encode(arrow(rows), PRODUCER, SEQUENCE, NOW_MS) == of_kafka_python(rows)


def test_varints_are_those_of_kafka_python():
    borders = [1 << bits for bits in (6, 13, 20, 27)]
    numbers = [-1, 0, 1, *(border + i for border in borders for i in (-1, 0, 1)), (1 << 31) - 1]
    written = [bytearray() for _ in numbers]
    for number, into in zip(numbers, written, strict=True):
        encode_varint(number, into.append)
    expected = [bytes(each) for each in written]
    assert varints(np.array(numbers)).to_pylist() == expected
    assert [varints(np.array([number])).to_pylist() for number in numbers] == [[each] for each in expected]
    assert [varint(number) for number in numbers] == expected


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


def test_header_key_that_is_not_utf8_is_written_as_spark_writes_it():
    headers = pyarrow.list_(pyarrow.struct({"key": pyarrow.binary(), "value": pyarrow.binary()}))
    keys = pyarrow.array([[{"key": b"\xff", "value": b"1"}, {"key": b"ok", "value": None}]], headers)
    batch = pyarrow.record_batch({"value": pyarrow.array([b"v"]), "key": pyarrow.array([b"k"]), "headers": keys})
    [row] = read(encode(batch, PRODUCER, SEQUENCE, NOW_MS))
    assert row.headers == [("\ufffd", b"1"), ("ok", None)]


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
