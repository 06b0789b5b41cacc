"""A queue of Arrow batches from one thread to another: bounded in memory, and in a temporary file beyond that.

Guarantee: putting never waits for the reader, and batches come out in the order they were put. Where it stops: the
disk of the temporary directory must have room for what the reader is behind by; if it has not, the reader is told.
"""

from __future__ import annotations

import os
import tempfile
import threading
from collections import deque
from collections.abc import Iterator
from typing import IO, NamedTuple

import pyarrow

IN_MEMORY = 64 << 20  # bytes


class Closed(Exception):
    """Nobody reads the spool any more."""


class _OnDisk(NamedTuple):
    offset: int
    length: int


class Spool:
    """Hand batches over, holding `in_memory` bytes of them at most, or one batch that is larger."""

    def __init__(self, in_memory: int = IN_MEMORY):
        self._limit, self._held = in_memory, 0
        self._waiting: deque[pyarrow.RecordBatch | _OnDisk] = deque()
        self._changed = threading.Condition()
        self._file: IO[bytes] | None = None  # it has no name, so that it is gone whatever becomes of this process
        self.end_of_file = self._on_disk = 0  # the file's bytes, and how many batches in it are still to be read
        self._finished = self._closed = False
        self._error: OSError | None = None
        self.spilled = 0  # bytes that went through the file

    def put(self, batch: pyarrow.RecordBatch) -> None:
        """Add a batch. Raises Closed when nobody will take it."""
        size = batch.nbytes
        with self._changed:
            if self._closed:
                raise Closed
            in_memory = self._held + size <= self._limit or not self._waiting
            if in_memory:
                self._held += size
                self._waiting.append(batch)
                self._changed.notify()
        if not in_memory:
            self._write(batch)

    def finish(self) -> None:
        """Say that no batch will follow."""
        with self._changed:
            self._finished = True
            self._changed.notify()

    def __iter__(self) -> Iterator[pyarrow.RecordBatch]:
        """Take the batches out as they come, until the last. Raises OSError if the file could not be written."""
        while (batch := self._take()) is not None:
            yield batch

    def close(self) -> None:
        """Throw away what was not read."""
        with self._changed:
            self._closed = True
            self._waiting.clear()
            if self._file:
                self._file.close()

    def _write(self, batch: pyarrow.RecordBatch) -> None:
        message = batch.serialize()
        with self._changed:
            if self._closed:
                raise Closed
            try:
                self._schema = batch.schema
                if self._file is None:
                    self._file = tempfile.TemporaryFile(prefix="exactly-once-kafka-", buffering=0)  # noqa: SIM115
                _write_all(self._file.fileno(), message, self.end_of_file)
            except OSError as error:
                self._error = error
                self._changed.notify()
                raise Closed from error
            self._waiting.append(_OnDisk(self.end_of_file, message.size))
            self.end_of_file += message.size
            self._on_disk += 1
            self.spilled += message.size
            self._changed.notify()

    def _take(self) -> pyarrow.RecordBatch | None:
        with self._changed:
            self._changed.wait_for(lambda: self._waiting or self._finished or self._error)
            if self._error:
                raise self._error
            if not self._waiting:
                return None
            batch = self._waiting.popleft()
            if isinstance(batch, _OnDisk):
                return self._read(batch)
            self._held -= batch.nbytes
            return batch

    def _read(self, place: _OnDisk) -> pyarrow.RecordBatch:
        assert self._file
        message = os.pread(self._file.fileno(), place.length, place.offset)
        self._on_disk -= 1
        if not self._on_disk:
            self.end_of_file = 0  # all of it was read: its room is used anew
        return pyarrow.ipc.read_record_batch(pyarrow.py_buffer(message), self._schema)


def _write_all(file: int, message: pyarrow.Buffer, offset: int) -> None:
    unwritten = memoryview(message)
    while unwritten:
        written = os.pwrite(file, unwritten, offset)
        unwritten, offset = unwritten[written:], offset + written
