"""The auditor's numbers while the history is still being made, brought up to date by what is new alone.

Guarantee: when all windows are closed they are those of `labs.evidence.auditor`: it counts the same things from the
whole history. Where it stops: it judges what the log shows. Whether the source holds what was sent, and whether a
second reader sees the same, only the auditor asks.

A result is awaited until its window is closed by a batch that the checkpoint has noted. Only then is it lost if it is
nowhere, so that nothing is called lost that is merely late.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from labs.pipeline.log.access_log import Access
from labs.pipeline.records import WINDOW_MS, window_start
from labs.room.sink_log import Row
from labs.room.state import NO_VERDICT

Key = tuple[int, str]  # (window start in epoch milliseconds, IP)
Attempt = tuple[int | None, str | None]  # (batch, name)
KEPT = 100  # attempts


@dataclass(slots=True)
class Rows:
    """The rows of an attempt that were seen, and how many it says that it wrote."""

    seen: int = 0
    written: int | None = None


class RunningVerdict:
    """Counts what is expected while it is sent (`watch`), and what is delivered while it becomes readable (`add`)."""

    def __init__(self) -> None:
        self.expected: Counter[Key] = Counter()
        self.duplicated = 0
        self._new: deque[Key] = deque()  # expected, and not yet in `_awaited`: another thread sends
        self._awaited: dict[int, set[str]] = {}  # window start -> IPs
        self._counts: dict[Key, int] = {}  # of the first record of each result
        self._delivered = 0
        self._wrong: set[Key] = set()
        self._phantoms: set[Key] = set()
        self._conflicting: set[Key] = set()
        self._lost: set[Key] = set()
        self._attempts: dict[Attempt, Rows] = {}  # the last ones: the rows of an attempt come close together
        self._have_totals = False
        self._torn: set[Attempt] = set()
        self._last_batch = -1
        self._out_of_order: set[int] = set()

    def watch(self, accesses: Iterable[Access]) -> Iterator[Access]:
        """Yield the accesses unchanged and count each as expected."""
        for access in accesses:
            key = window_start(access[0]), access[1]
            self.expected[key] += 1
            if self.expected[key] == 1:
                self._new.append(key)
            yield access

    def has(self, row: Row) -> bool:
        """Tell whether a record of this result is readable already."""
        return (row.window, row.ip) in self._counts

    def add(self, rows: Iterable[Row]) -> None:
        """Count rows that have become readable, in the order of the log; a transaction's rows come together."""
        touched = set()
        for row in rows:
            if row.window is not None and row.ip is not None and row.count is not None:
                self._add_result((row.window, row.ip), row.count)
            touched.add(self._add_to_attempt(row))
        for attempt in touched if self._have_totals else ():
            rows_of = self._attempts[attempt]
            torn = rows_of.written is None or rows_of.seen < rows_of.written
            (self._torn.add if torn else self._torn.discard)(attempt)
        while len(self._attempts) > KEPT:
            del self._attempts[next(iter(self._attempts))]

    def close(self, watermark_ms: int, undecided: Collection[Key] = ()) -> None:
        """Call lost what is nowhere, and whose window ends at the watermark or before. `undecided` may still come."""
        self._take_new()
        for window in [each for each in self._awaited if each + WINDOW_MS <= watermark_ms]:
            left = {ip for ip in self._awaited[window] if (window, ip) in undecided}
            self._lost |= {(window, ip) for ip in self._awaited[window] - left}
            if left:
                self._awaited[window] = left
            else:
                del self._awaited[window]

    @property
    def awaited(self) -> int:
        self._take_new()
        return sum(map(len, self._awaited.values()))

    def numbers(self) -> dict[str, Any]:
        """Return the verdict of the room's state."""
        awaited = self.awaited
        numbers = {
            "expected": self._delivered + len(self._wrong - self._phantoms) + len(self._lost) + awaited,
            "delivered": self._delivered,
            "awaited": awaited,
            "lost": len(self._lost),
            "duplicated": self.duplicated,
            "conflicting": len(self._conflicting),
            "torn": len(self._torn),
        }
        return {**NO_VERDICT, **numbers, **self._judged(numbers)}

    def _judged(self, numbers: dict[str, int]) -> dict[str, str]:
        errors = {name: numbers[name] for name in ("lost", "duplicated", "conflicting", "torn")}
        errors |= {"with a wrong count": len(self._wrong - self._phantoms - self._conflicting)}
        errors |= {"nobody asked for": len(self._phantoms), "out of order": len(self._out_of_order)}
        why = ", ".join(f"{number:,} {name}" for name, number in errors.items() if number)
        if why:
            return {"word": "invalid", "why": why}
        if self._delivered:
            return {"word": "valid", "why": "everything that was due is there once"}
        return {}

    def _take_new(self) -> None:
        while self._new:
            window, ip = key = self._new.popleft()
            if key not in self._counts:
                self._awaited.setdefault(window, set()).add(ip)

    def _add_result(self, key: Key, count: int) -> None:
        self._take_new()
        first = self._counts.setdefault(key, count)
        window, ip = key
        if ip in self._awaited.get(window, ()) or key in self._lost:
            self._lost.discard(key)
            self._awaited.get(window, set()).discard(ip)
            self._file(key, count)
        elif key not in self.expected and key not in self._phantoms:
            self._phantoms.add(key)
            self._wrong.add(key)
        else:
            self.duplicated += 1
            if count != first and key not in self._conflicting:
                self._conflicting.add(key)
                self._delivered -= key not in self._wrong
                self._wrong.add(key)

    def _file(self, key: Key, count: int) -> None:
        if count == self.expected[key]:
            self._delivered += 1
        else:
            self._wrong.add(key)

    def _add_to_attempt(self, row: Row) -> Attempt:
        attempt = row.batch, row.attempt
        rows = self._attempts.setdefault(attempt, Rows())
        rows.seen += 1
        if row.rows is not None:
            self._have_totals = True
            rows.written = max(rows.written or 0, row.rows)
        if row.batch is not None:
            if row.batch < self._last_batch:
                self._out_of_order.add(row.batch)
            self._last_batch = max(self._last_batch, row.batch)
        return attempt
