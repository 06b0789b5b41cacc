"""Small Arrow batches are written as few large ones, in their order."""

from __future__ import annotations

import pyarrow
import pytest

from exactly_once_kafka.executors.partitioner import gathered
from exactly_once_kafka.kafka_client.record_batch import LARGEST, MOST_RECORDS


def batches(*sizes: int, length: int = 1):
    values = iter(range(sum(sizes)))
    columns = [pyarrow.array([f"{next(values):{length}}" for _ in range(n)], pyarrow.string()) for n in sizes]
    return [pyarrow.RecordBatch.from_arrays([column], ["value"]) for column in columns]


@pytest.mark.parametrize(
    ("sizes", "expected"),
    [
        ([], []),
        ([5], [5]),
        ([5, 0, 7, 1], [13]),
        ([MOST_RECORDS - 1, 1, 3], [MOST_RECORDS, 3]),
        ([3, MOST_RECORDS, 2], [MOST_RECORDS + 3, 2]),
    ],
)
def test_small_ones_are_joined_until_they_are_worth_a_request(sizes, expected):
    joined = list(gathered(iter(batches(*sizes))))
    assert [batch.num_rows for batch in joined] == expected
    assert [int(value) for batch in joined for value in batch["value"].to_pylist()] == list(range(sum(sizes)))


def test_few_long_rows_are_not_held_back():
    given = batches(2, 2, 2, length=LARGEST // 2)
    taken = []

    def taking():
        for batch in given:
            taken.append(batch)
            yield batch

    joined = gathered(taking())
    assert next(joined).num_rows == 2
    assert len(taken) == 1
