"""What a log's count must find and what it found, in parts, of which only one is in memory at a time.

Each window and IP takes 0.6 kB while it is audited, so the audit of a log of some gigabytes would not fit in memory.
Limitations: a few numbers per window and per IP stay in memory, and so does each result that is missing or too small.
"""

from __future__ import annotations

import marshal
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from operator import attrgetter
from typing import IO, Any

from labs.evidence.auditor.expected import Expected
from labs.evidence.auditor.observed import Key, Result
from labs.pipeline.log.access_log import Access
from labs.pipeline.records import WINDOW_MS

IN_MEMORY = 1_000_000  # expected counts, and as many results
PARTS = 61  # a prime number: windows a minute or an hour apart are in different parts

Part = tuple[Mapping[Key, int], list[Result]]  # the expected counts and the results of some windows

_fields = attrgetter("window_start", "ip", "count", "batch_id", "attempt", "batch_rows", "partition", "offset")


class PartsUnwritable(OSError):
    """The temporary files of the parts could not be written."""


class WindowParts:
    """Expected counts, filled while the accesses pass through `watch`, and the results.

    Iterate over the parts: each is the expected counts and the results of some windows, with all that there is of
    these windows. Up to `in_memory` counts and as many results are one part, and touch no file. More go to PARTS
    temporary files without a name, about 60 bytes each.
    """

    def __init__(self, in_memory: int = IN_MEMORY):
        self._in_memory = in_memory
        self._expected = Expected()
        self._results: list[Result] = []
        self._files: list[IO[bytes]] = []

    def watch(self, accesses: Iterable[Access]) -> Iterator[Access]:
        """Yield the accesses unchanged, and count each. Raises PartsUnwritable."""
        counts, most = self._expected.counts, self._in_memory
        for access in self._expected.watch(accesses):
            if len(counts) > most:
                self._spill()
            yield access

    def add(self, results: Iterable[Result]) -> Iterator[int]:
        """Add the results, and yield after each how many there are by now. Raises PartsUnwritable."""
        for number, result in enumerate(results, start=1):
            self._results.append(result)
            if len(self._results) > self._in_memory:
                self._spill()
            yield number

    def __iter__(self) -> Iterator[Part]:
        if not self._files:
            yield self._expected.counts, self._results
            return
        if self._expected.counts or self._results:
            self._spill()
        for file in self._files:
            yield _read(file)

    def _spill(self) -> None:
        """Move what is in memory to the files."""
        counts: list[list[tuple[Any, ...]]] = [[] for _ in range(PARTS)]
        results: list[list[tuple[Any, ...]]] = [[] for _ in range(PARTS)]
        for (window, ip), count in self._expected.counts.items():
            counts[window // WINDOW_MS % PARTS].append((window, ip, count))
        for result in self._results:
            results[result.window_start // WINDOW_MS % PARTS].append(_fields(result))
        try:
            if not self._files:
                self._files = [tempfile.TemporaryFile() for _ in range(PARTS)]  # noqa: SIM115  # they end with the parts
            for file, rows in zip(self._files, zip(counts, results, strict=True), strict=True):
                packed = marshal.dumps(rows)
                file.write(len(packed).to_bytes(8) + packed)
                file.flush()
        except OSError as error:
            for file in self._files:
                with suppress(OSError):  # of a last flush to a full disk
                    file.close()
            raise PartsUnwritable(
                f"cannot keep counts in {tempfile.tempdir}: {error.strerror or error}; expected room for 60 bytes "
                "per window and IP, twice: make some, or set TMPDIR to a directory that has it"
            ) from error
        self._expected.counts.clear()
        self._results.clear()


def _read(file: IO[bytes]) -> Part:
    """Return all that `_spill` has written to a file; a window and IP may be in it more than once."""
    expected, results = Counter[Key](), list[Result]()
    file.seek(0)
    while size := file.read(8):
        counts, rows = marshal.loads(file.read(int.from_bytes(size)))
        for window, ip, count in counts:
            expected[window, ip] += count
        results += [Result(*row) for row in rows]
    return expected, results
