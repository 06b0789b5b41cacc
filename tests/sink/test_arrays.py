"""Arrow arrays and numpy's by their buffers: as Arrow itself turns one into the other, and without pandas."""

import random
import subprocess
import sys

import numpy as np
import pyarrow
import pytest

from exactly_once_kafka.kafka_client.record_batch import binaries, booleans, int32s, integers, nulls, one

SLICES = [(0, None), (0, 0), (3, 0), (1, 1), (5, 9), (8, 17), (13, None)]
# All that a task does with rows, on its way to a record batch.
TASK = """
import sys
import pyarrow
from exactly_once_kafka.kafka_client.record_batch import int32s, one
from exactly_once_kafka.executors.partitioner import gathered, split, with_writers
from exactly_once_kafka.kafka_client.record_batch import LARGEST, ProducerId, cut, encode
import exactly_once_kafka.executors.write_task
values = pyarrow.concat_arrays([one(str(n).encode()) for n in range(700)])
headers = pyarrow.nulls(700, pyarrow.list_(pyarrow.struct([("key", pyarrow.binary()), ("value", pyarrow.binary())])))
partition = pyarrow.concat_arrays([pyarrow.nulls(350, pyarrow.int32()), int32s(__import__("numpy").zeros(350, "i4"))])
topics = pyarrow.concat_arrays([one(b"a"), one(b"b")] * 350).cast(pyarrow.binary())
names = ["key", "value", "headers", "partition", "topic"]
rows = pyarrow.RecordBatch.from_arrays([values, values, headers, partition, topics], names)
written = 0
for batch in with_writers(gathered(iter([rows])), None, lambda topic: 4, 1, 2):
    for placed in split(batch, None, lambda topic: 4, 1):
        for piece in cut(placed.rows, [], LARGEST):
            encode(piece, ProducerId(1, 1), 0, 0, tags=[("batch_id", b"1")])
            written += piece.num_rows
print(written, "pandas" in sys.modules)
"""


def with_nulls(kind):
    chance = random.Random(7)
    numbers = [chance.choice([None, chance.randrange(-5, 1 << 30)]) for _ in range(40)]
    return pyarrow.array(numbers, kind)


@pytest.mark.parametrize(("start", "length"), SLICES)
@pytest.mark.parametrize("kind", [pyarrow.int32(), pyarrow.int64()])
def test_numbers_and_nulls_of_any_slice_are_arrows(kind, start, length):
    part = with_nulls(kind).slice(start, length)
    assert integers(part, of_null=-7).tolist() == part.fill_null(-7).to_pylist()
    assert nulls(part).tolist() == part.is_null().to_pylist()


def test_numbers_without_nulls_are_arrows():
    whole = pyarrow.array(range(20), pyarrow.int32())
    assert integers(whole.slice(5, 7), of_null=0).tolist() == list(range(5, 12))
    assert not nulls(whole).any()


@pytest.mark.parametrize("length", [0, 1, 7, 8, 9, 100])
def test_arrays_of_numpys_are_arrows(length):
    chosen = np.arange(length) % 3 == 0
    assert booleans(chosen).to_pylist() == chosen.tolist()
    assert int32s(np.arange(length, dtype=np.int32)).to_pylist() == list(range(length))
    starts = np.arange(length + 1)
    assert binaries(starts, pyarrow.py_buffer(b"x" * length)).to_pylist() == [b"x"] * length


def test_one_element_is_an_array_of_it():
    assert one(b"abc").to_pylist() == [b"abc"]
    assert one(b"")[0].as_py() == b""


@pytest.mark.bench
def test_a_task_writes_rows_without_pandas():
    ran = subprocess.run([sys.executable, "-c", TASK], capture_output=True, text=True, timeout=120)
    assert ran.stdout.split() == ["700", "False"], ran.stderr
