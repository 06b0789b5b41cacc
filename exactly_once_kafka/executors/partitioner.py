"""Which partition a key belongs to: as Kafka's Java client says, `(murmur2(key) & 0x7fffffff) % partitions`.

Where it stops: the rounds of the hash are as many as the longest key has words, at some 10 µs of a processor each
however few keys are that long. Source: org.apache.kafka.common.utils.Utils.murmur2.
"""

from __future__ import annotations

import numpy as np
import pyarrow
from numpy.typing import NDArray

from exactly_once_kafka.executors.arrays import nulls

NO_KEY = -1
SEED, M = np.uint32(0x9747B28C), np.uint32(0x5BD1E995)
TAIL_MASK = np.array([0, 0xFF, 0xFFFF, 0xFFFFFF], np.uint32)  # by the number of bytes that are left


def partitions_of(keys: pyarrow.Array, partitions: int) -> NDArray[np.int32]:
    """Return the partition of each key, binary or string, of a topic with so many; NO_KEY for a null.

    The caller spreads what has no key as he likes.
    """
    chosen = ((murmur2(keys) & np.uint32(0x7FFFFFFF)) % np.uint32(partitions)).astype(np.int32)
    chosen[nulls(keys)] = NO_KEY
    return chosen


def murmur2(keys: pyarrow.Array) -> NDArray[np.uint32]:
    """Return the 32-bit MurmurHash2 of each key, binary or string, with Kafka's seed. That of a null means nothing."""
    starts, data = _starts_and_data(keys.cast(pyarrow.large_binary()))
    starts, lengths = starts[:-1], np.diff(starts)
    word_at = np.ndarray(len(data) - 3, "<u4", data, strides=(1,))  # a word starts at every byte
    words = lengths >> 2
    hashes = SEED ^ lengths.astype(np.uint32)
    live = np.flatnonzero(words)  # the keys that are not read to the end
    for word in range(words.max(initial=0)):
        live = live[words[live] > word]
        hashes[live] = hashes[live] * M ^ _mixed(word_at[starts[live] + 4 * word])
    left = lengths & 3
    tail = word_at[starts + 4 * words] & TAIL_MASK[left]
    hashes = np.where(left, (hashes ^ tail) * M, hashes)
    hashes = (hashes ^ hashes >> np.uint32(13)) * M
    return hashes ^ hashes >> np.uint32(15)


def _mixed(words: NDArray[np.uint32]) -> NDArray[np.uint32]:
    words = words * M
    return (words ^ words >> np.uint32(24)) * M


def _starts_and_data(keys: pyarrow.Array) -> tuple[NDArray[np.int64], NDArray[np.uint8]]:
    """Return where each key starts in the bytes of all, and where the last ends; a word can be read at any of these."""
    if not len(keys):
        return np.zeros(1, np.int64), np.zeros(4, np.uint8)
    _, offsets, data = keys.buffers()
    starts = np.frombuffer(offsets, np.int64)[keys.offset : keys.offset + len(keys) + 1]
    used = np.frombuffer(data or b"", np.uint8)[starts[0] : starts[-1]]
    return starts - starts[0], np.concatenate((used, np.zeros(4, np.uint8)))
