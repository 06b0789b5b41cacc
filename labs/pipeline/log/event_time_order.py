"""Put accesses in event-time order with bounded memory: a stable external merge sort.

Sorted runs go to temporary files and are merged. Input that fits in memory never touches the disk. The
files have no name (on POSIX), so they are gone when the iterator ends, is closed, or its process is killed.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Generator, Iterable, Iterator
from contextlib import ExitStack, suppress
from heapq import merge
from itertools import chain, islice
from operator import itemgetter
from typing import IO

from labs.pipeline.log.access_log import Access

FAN_IN = 32  # runs merged at once; three levels of them are still under the 256 open files that macOS allows
BUFFER_BYTES = 64 * 1024  # per open run

_event_time = itemgetter(0)


class SortFailed(OSError):
    """The sorted runs could not be written or read back."""


def in_event_time_order(
    accesses: Iterable[Access],
    max_in_memory: int = 500_000,
    directory: str | os.PathLike[str] | None = None,
) -> Generator[Access, None, None]:
    """Return an iterator over the accesses by time; those of the same time keep their order.

    Holds at most `max_in_memory` accesses (about 100 bytes each). The rest waits in `directory` (default: the
    system's temporary directory), about 30 bytes each. Raises SortFailed when that cannot be written.
    """
    if max_in_memory < 1:
        raise ValueError(f"max_in_memory is {max_in_memory}; sorting needs at least 1 access in memory")
    return _merge_sort(iter(accesses), max_in_memory, directory)


def _merge_sort(
    accesses: Iterator[Access], max_in_memory: int, directory: str | os.PathLike[str] | None
) -> Generator[Access, None, None]:
    spilled = _SpilledRuns(directory)
    try:
        run = sorted(islice(accesses, max_in_memory), key=_event_time)
        for first in accesses:
            spilled.add(run)
            run.clear()  # before the next run is read: one in memory, not two
            run = sorted(chain([first], islice(accesses, max_in_memory - 1)), key=_event_time)
        yield from merge(*spilled.read(), run, key=_event_time)
    finally:
        spilled.close()


class _SpilledRuns:
    """Sorted runs in temporary files; FAN_IN files of one level become one file of the next."""

    def __init__(self, directory: str | os.PathLike[str] | None):
        self.directory = directory
        self.levels: list[list[IO[str]]] = []

    def add(self, run: Iterable[Access], level: int = 0) -> None:
        if level == len(self.levels):
            self.levels.append([])
        files = self.levels[level]
        files.append(self._write(run))
        if len(files) == FAN_IN:
            self.add(merge(*map(_read, files), key=_event_time), level + 1)
            _close(files)

    def read(self) -> list[Iterator[Access]]:
        """Return the runs in the order of their input, which is what keeps the merge stable."""
        return [_read(file) for files in reversed(self.levels) for file in files]

    def close(self) -> None:
        for files in self.levels:
            _close(files)

    def _write(self, run: Iterable[Access]) -> IO[str]:
        try:
            with ExitStack() as on_failure:
                file = on_failure.enter_context(
                    tempfile.TemporaryFile("w+", BUFFER_BYTES, "utf-8", "\n", dir=self.directory)
                )
                file.writelines(f"{time_ms},{ip}\n" for time_ms, ip in run)
                file.seek(0)
                on_failure.pop_all()
                return file
        except OSError as error:
            where = self.directory or tempfile.tempdir
            raise SortFailed(
                f"cannot keep sorted runs in {where}: {error.strerror or error}; expected room for "
                "30 bytes per access: make some, or set TMPDIR to a directory that has it"
            ) from error


def _read(file: IO[str]) -> Iterator[Access]:
    for line in file:
        time_ms, ip = line.split(",", 1)
        yield int(time_ms), ip[:-1]


def _close(files: list[IO[str]]) -> None:
    while files:
        with suppress(OSError):  # of a last flush to a full disk
            files.pop().close()
