"""Arrow arrays made of numpy's, and numpy's of Arrow's, by their buffers.

Arrow can do it itself, and imports pandas to see whether it was given some of that. For a process that has just been
started to write rows, that takes longer than to write them.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow
from numpy.typing import NDArray

Integers = NDArray[np.int64]
BINARY = pyarrow.large_binary()


def binaries(starts: Integers, data: pyarrow.Buffer) -> pyarrow.Array:
    """Return the array whose elements start in the data where it is said; the last one ends at the last number."""
    return pyarrow.Array.from_buffers(BINARY, len(starts) - 1, [None, pyarrow.py_buffer(starts), data])


def one(element: bytes) -> pyarrow.Array:
    """Return an array with one binary element."""
    return binaries(np.array([0, len(element)]), pyarrow.py_buffer(element))


def booleans(values: NDArray[np.bool_]) -> pyarrow.Array:
    return pyarrow.Array.from_buffers(
        pyarrow.bool_(), len(values), [None, pyarrow.py_buffer(np.packbits(values, bitorder="little"))]
    )


def int32s(values: NDArray[np.int32]) -> pyarrow.Array:
    return pyarrow.Array.from_buffers(pyarrow.int32(), len(values), [None, pyarrow.py_buffer(values)])


def integers(array: pyarrow.Array, of_null: int) -> NDArray[Any]:
    """Return the numbers of an int32 or int64 array, with one that stands for null."""
    kind = np.dtype(f"i{array.type.bit_width // 8}")
    values = np.frombuffer(array.buffers()[1] or b"", kind)[array.offset : array.offset + len(array)]
    return np.where(nulls(array), kind.type(of_null), values) if array.null_count else values


def nulls(array: pyarrow.Array) -> NDArray[np.bool_]:
    """Tell of each element whether it is null."""
    valid = array.buffers()[0] if array.null_count else None
    if valid is None:
        return np.zeros(len(array), np.bool_)
    bits = np.unpackbits(np.frombuffer(valid, np.uint8), bitorder="little")
    return np.equal(bits[array.offset : array.offset + len(array)], 0)
