"""Keys go to the partitions that Kafka's Java client chooses: its own hash is asked, and that of kafka-python."""

from __future__ import annotations

import random

import numpy as np
import pyarrow
import pytest
from kafka.partitioner import murmur2 as murmur2_of_kafka_python
from pyspark.sql import Column

from exactly_once_kafka.executors.partitioner import UNSET, murmur2, partitions_of_keys

PARTITIONS = 12


def random_keys(count: int) -> list[bytes]:
    """Return keys of 0 to 300 bytes of any value: all lengths, that are multiples of four and that are not."""
    draw = random.Random(4)
    return [draw.randbytes(draw.randint(0, 300)) for _ in range(count)]


def chosen(hashed: int) -> int:
    return (hashed & 0x7FFFFFFF) % PARTITIONS


def murmur2_of_java(spark, keys: list[bytes]) -> np.ndarray:
    """Hash all keys in Spark's JVM by one query, as int32: a call from here for each would take minutes."""
    jvm = spark._jvm
    loader = jvm.Thread.currentThread().getContextClassLoader()
    utils = jvm.java.lang.Class.forName("org.apache.kafka.common.utils.Utils", True, loader)
    rows = spark.createDataFrame(pyarrow.table({"key": pyarrow.array(keys, pyarrow.binary())}))
    expressions, integer = jvm.org.apache.spark.sql.classic.ExpressionUtils, jvm.org.apache.spark.sql.types.DataTypes
    arguments = jvm.PythonUtils.toSeq([expressions.expression(rows.key._jc)])
    call = jvm.org.apache.spark.sql.catalyst.expressions.objects.StaticInvoke(
        *(utils, integer.IntegerType, "murmur2", arguments, jvm.PythonUtils.toSeq([])),
        *(True, False, True, jvm.scala.Option.empty()),
    )
    return rows.select(Column(expressions.column(call)).alias("hash")).toArrow()["hash"].to_numpy()


@pytest.mark.long
def test_java_chooses_the_same_partition_for_a_hundred_thousand_keys(spark):
    keys = random_keys(100_000)
    of_java = murmur2_of_java(spark, keys)
    assert (
        partitions_of_keys(pyarrow.array(keys), PARTITIONS).tolist() == ((of_java & 0x7FFFFFFF) % PARTITIONS).tolist()
    )


def test_hash_is_that_of_kafka_python():
    keys = random_keys(5000)
    assert murmur2(pyarrow.array(keys)).tolist() == [murmur2_of_kafka_python(key) for key in keys]


@pytest.mark.parametrize("length", range(10))
@pytest.mark.parametrize("byte", [0x00, 0x7F, 0x80, 0xFF])
def test_short_keys_up_to_the_last_byte(length, byte):
    key = bytes([byte] * length)
    assert murmur2(pyarrow.array([key])).tolist() == [murmur2_of_kafka_python(key)]


def test_one_long_key_among_short_ones():
    keys = [b"a", bytes(range(256)) * 40, b"", b"abcd"]
    assert murmur2(pyarrow.array(keys)).tolist() == [murmur2_of_kafka_python(key) for key in keys]


@pytest.mark.parametrize("kind", [pyarrow.string(), pyarrow.large_string(), pyarrow.binary(), pyarrow.large_binary()])
def test_a_slice_with_nulls_of_any_type(kind):
    keys = ["left out", "é", None, "", "a key", None, "left out too"]
    expected = [UNSET if key is None else chosen(murmur2_of_kafka_python(key.encode())) for key in keys[1:6]]
    found = partitions_of_keys(pyarrow.array(keys, kind).slice(1, 5), PARTITIONS)
    assert found.tolist() == expected
    assert found.dtype == np.int32


@pytest.mark.parametrize("keys", [[], [None], [None, None], [b""]])
def test_hardly_a_key(keys):
    of_empty = chosen(murmur2_of_kafka_python(b""))
    expected = [UNSET if key is None else of_empty for key in keys]
    assert partitions_of_keys(pyarrow.array(keys, pyarrow.binary()), PARTITIONS).tolist() == expected


def test_bytes_below_a_null_do_not_move_the_keys_behind():
    keys = pyarrow.array([b"one", b"hidden", b"three"])
    bitmap = pyarrow.array([True, False, True]).buffers()[1]
    masked = pyarrow.Array.from_buffers(keys.type, 3, [bitmap, *keys.buffers()[1:]])
    one, _, three = partitions_of_keys(keys, PARTITIONS)
    assert partitions_of_keys(masked, PARTITIONS).tolist() == [one, UNSET, three]
