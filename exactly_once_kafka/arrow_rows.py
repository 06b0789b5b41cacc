"""Reads the rows of a DataFrame in Arrow batches, while Spark still computes later ones.

Guarantee: Spark never waits for the reader. Spark sends results on the one thread that schedules all of its jobs, so a
reader that pauses would block every job of the application. Here a thread receives the results at once, into a `Spool`.

Limitations: Spark collects a whole partition before it hands out its first row, and refuses results of more than
`spark.driver.maxResultSize` (1 GiB unless set) in one micro-batch.
"""

from __future__ import annotations

import contextlib
import os
import socket
import tempfile
import threading
from collections import deque
from collections.abc import Iterator
from typing import IO, NamedTuple

import pyarrow
from pyspark.errors.exceptions.captured import unwrap_spark_exception
from pyspark.sql import DataFrame
from pyspark.sql.pandas.serializers import ArrowCollectSerializer
from pyspark.util import local_connect_and_auth

from exactly_once_kafka.errors import BatchFailed

IN_MEMORY = 64 << 20  # bytes


class Closed(Exception):
    """The spool was closed, or its file cannot be written: no further batch is accepted."""


class _OnDisk(NamedTuple):
    offset: int
    length: int


class Spool:
    """A queue of Arrow batches: at most `in_memory` bytes, or one larger batch, in memory, and the others in a file."""

    def __init__(self, in_memory: int = IN_MEMORY):
        self._limit, self._held = in_memory, 0
        self._waiting: deque[pyarrow.RecordBatch | _OnDisk] = deque()
        self._changed = threading.Condition()
        self._file: IO[bytes] | None = None  # it has no name, so it disappears with this process, even after a crash
        self.end_of_file = self._on_disk = 0  # bytes in the file; number of unread batches in it
        self._finished = self._closed = False
        self._error: OSError | None = None
        self.spilled = 0  # bytes that went through the file

    def put(self, arrow_batch: pyarrow.RecordBatch) -> None:
        """Add a batch. Raises Closed if nobody will read it, or if the file cannot be written."""
        size = arrow_batch.nbytes
        with self._changed:
            if self._closed:
                raise Closed
            in_memory = self._held + size <= self._limit or not self._waiting
            if in_memory:
                self._held += size
                self._waiting.append(arrow_batch)
                self._changed.notify()
        if not in_memory:
            self._write(arrow_batch)

    def finish(self) -> None:
        """Say that no batch will follow."""
        with self._changed:
            self._finished = True
            self._changed.notify()

    def __iter__(self) -> Iterator[pyarrow.RecordBatch]:
        """Yield the batches as they come, until the last. Raises OSError if the file could not be written."""
        while (arrow_batch := self._take()) is not None:
            yield arrow_batch

    def close(self) -> None:
        """Discard the batches that were not read."""
        with self._changed:
            self._closed = True
            self._waiting.clear()
            if self._file:
                self._file.close()

    def _write(self, arrow_batch: pyarrow.RecordBatch) -> None:
        message = arrow_batch.serialize()
        with self._changed:
            if self._closed:
                raise Closed
            try:
                self._schema = arrow_batch.schema
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
            arrow_batch = self._waiting.popleft()
            if isinstance(arrow_batch, _OnDisk):
                return self._read(arrow_batch)
            self._held -= arrow_batch.nbytes
            return arrow_batch

    def _read(self, place: _OnDisk) -> pyarrow.RecordBatch:
        assert self._file
        message = os.pread(self._file.fileno(), place.length, place.offset)
        self._on_disk -= 1
        if not self._on_disk:
            self.end_of_file = 0  # all batches in the file were read: write from its start again
        return pyarrow.ipc.read_record_batch(pyarrow.py_buffer(message), self._schema)


def _write_all(file: int, message: pyarrow.Buffer, offset: int) -> None:
    unwritten = memoryview(message)
    while unwritten:
        written = os.pwrite(file, unwritten, offset)
        unwritten, offset = unwritten[written:], offset + written


class ArrowRows:
    """Rows that Spark has begun to compute, in Arrow batches: iterate over it once, or close it.

    It is `DataFrame.toArrow` without the list that collects everything (pyspark/sql/pandas/conversion.py). Batches come
    while Spark still computes later ones, the partitions in no fixed order. An error in the query is raised at the end
    of the iteration, after the batches before it. So batches may be used only if the iteration ends without an error.
    """

    def __init__(self, rows: DataFrame, in_memory: int = IN_MEMORY):
        answer = rows._jdf.collectAsArrowToPython()
        # Spark begins when the connection is made, so everything else comes after it.
        file, self._connection = local_connect_and_auth(answer[0], answer[1])
        self._connection.settimeout(None)  # Spark may compute for as long as it needs
        self._server = answer[2]
        self._spool, self._failures = Spool(in_memory), list[Exception]()
        self._drainer = threading.Thread(
            target=_drain, args=(file, self._spool, self._failures), name="rows-from-spark", daemon=True
        )
        self._drainer.start()
        self._finished = self._closed = False

    def __iter__(self) -> Iterator[pyarrow.RecordBatch]:
        try:
            yield from self._spool
            self._finished = True
        except OSError as error:
            raise BatchFailed(
                f"rows that Kafka has not taken yet cannot be kept in the temporary directory: {error}. Make room "
                "there, or set TMPDIR to another directory, and restart the query: the batch is repeated and published "
                "once"
            ) from error
        finally:
            self.close()
        if self._failures:
            raise self._failures[0]

    def close(self) -> None:
        """Stop Spark's computation, unless it has finished."""
        if self._closed:
            return
        self._closed = True
        self._spool.close()
        with contextlib.suppress(OSError):
            self._connection.shutdown(socket.SHUT_RDWR)  # wakes the thread, if it waits for rows
        self._drainer.join()
        self._connection.close()
        # If the query fails, its stream of rows only ends early, and `getResult` raises the error. A caller that stops
        # reading early has an error of its own, so Spark's error about the closed connection is suppressed.
        with _explained() if self._finished else contextlib.suppress(Exception):
            self._server.getResult()


@contextlib.contextmanager
def _explained() -> Iterator[None]:
    try:
        with unwrap_spark_exception():
            yield
    except Exception as error:
        if "spark.driver.maxResultSize" not in str(error):
            raise
        raise BatchFailed(
            "the micro-batch is larger than what Spark lets pass through its driver, spark.driver.maxResultSize (1g "
            "unless set). Raise it (0: no limit) and restart the query: the batch is repeated and published once"
        ) from error


def _drain(file: IO[bytes], spool: Spool, failures: list[Exception]) -> None:
    try:
        # The last element is not a batch: it is the order of the batches.
        for arrow_batch in ArrowCollectSerializer().load_stream(file):  # type: ignore[no-untyped-call]
            if isinstance(arrow_batch, pyarrow.RecordBatch):
                spool.put(arrow_batch)
    except Closed:
        pass
    except Exception as error:
        failures.append(error)  # raised by `__iter__`, unless `getResult` raises Spark's own error first
    finally:
        spool.finish()
        with contextlib.suppress(OSError):
            file.close()
