"""Cutting keeps every row, in order, and within the bound."""

from __future__ import annotations

import itertools

import pyarrow
import pytest

from exactly_once_kafka.kafka_client.record_batch import cut, encode, encode_records, most_bytes, most_bytes_of_all
from tests.sink.random_rows import NOW_MS, OF_LAST, PRODUCER, TAGS, Row, arrow, random_rows, read, tagged


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


@pytest.mark.parametrize("tags", [[], [*TAGS, *OF_LAST]])
@pytest.mark.parametrize("headers", [[], [("", None)] * 100, [("x" * 64, b"")] * 50])
def test_no_records_are_larger_than_is_said_before(tags, headers):
    rows = arrow([Row(None, None, headers), Row(b"", b"k" * 64, headers), Row(b"v" * 8192, b"", headers)] * 5)
    for start in range(15):
        some = rows.slice(start)
        assert len(encode_records(some, tags)) <= most_bytes(some, tags).sum()
        plain = some.drop_columns(["headers"])
        assert len(encode_records(plain, tags)) <= most_bytes(plain, tags).sum() <= most_bytes_of_all(plain, tags)


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
