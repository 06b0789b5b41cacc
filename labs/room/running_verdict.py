"""The auditor's verdict while the pipeline still runs: `labs.evidence.auditor` judges again what has changed.

A result is due when a record of it is readable, or when a batch in the checkpoint's commit log has closed its window.
Until then it is awaited, so that a result that is merely late is not called lost.

Guarantee: when all windows are closed, the numbers are those that the auditor finds in the whole history. Cost: `audit`
judges each result by itself, so it runs only on the windows in which something is new. A batch can have rows of several
windows, so all batches are judged together when there are new rows. Limitations: it judges what the log shows. Whether
the source holds what was sent, and whether a second reader sees the same, is judged at the end of the session only.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from itertools import islice
from typing import Any

from labs.evidence.auditor.anomalies import Anomaly, AnomalyTally, Fate
from labs.evidence.auditor.audit import Batches, audit
from labs.evidence.auditor.expected import Expected
from labs.evidence.auditor.observed import Key, Result
from labs.pipeline.log.access_log import Access
from labs.pipeline.records import WINDOW_MS, window_start
from labs.room.sink_log import Row, clock
from labs.room.state import NO_VERDICT

DUE = "due"
PIECES = 5  # of evidence, of each kind
WITHOUT_RECORD = {"lost": "in no batch", "awaited": "sent, and not readable yet"}


class RunningVerdict:
    """Counts what is expected while it is sent (`watch`), and judges results as they become readable (`add`)."""

    def __init__(self) -> None:
        self._sent = Expected()
        self._ips: defaultdict[int, set[str]] = defaultdict(set)  # window start -> IPs; the sending thread adds them
        self._first: dict[Key, Row] = {}  # the first readable record of each result
        self._again: list[tuple[Row, Row]] = []  # the first copies, each with its original
        self._attempts: defaultdict[str, list[Row]] = defaultdict(list)  # attempt -> its readable records
        self._results: defaultdict[int, list[Result]] = defaultdict(list)  # window start -> results, without headers
        self._batches, self._across = Batches(), AnomalyTally()
        self._closed_ms, self._undecided = 0, frozenset[Key]()
        self._changed: set[int] = set()  # windows with new rows
        self._found: defaultdict[int, Counter] = defaultdict(Counter)  # window start -> what its audit found
        self._missing: dict[int, dict[str, list[Key]]] = {}  # window start -> its lost and its awaited results
        self._total: Counter = Counter()  # of all windows

    @property
    def expected(self) -> Mapping[Key, int]:
        """The requests that were sent per (window start in epoch milliseconds, IP)."""
        return self._sent.counts

    def watch(self, accesses: Iterable[Access]) -> Iterator[Access]:
        """Yield the accesses unchanged and count each as expected."""
        for access in self._sent.watch(accesses):
            self._ips[window_start(access[0])].add(access[1])
            yield access

    def has(self, row: Row) -> bool:
        """Tell whether a record of this result is readable already."""
        return (row.window, row.ip) in self._first

    def add(self, rows: Iterable[Row]) -> None:
        """Take rows that have become readable, in the order of the log."""
        for row in rows:
            evidence = row.batch, row.attempt, row.rows, 0, row.offset
            result = Result(row.window, row.ip, row.count, *evidence)  # type: ignore[arg-type]  # Result refuses None
            window, ip = result.window_start, result.ip
            self._note(row, (window, ip))
            self._results[window].append(Result(window, ip, result.count))
            self._changed.add(window)
            list(self._batches.collect([result]))

    def _note(self, row: Row, key: Key) -> None:
        """Keep the first record of a result, the first copies of others, and the attempt that wrote it."""
        self._attempts[f"batch {row.batch}, attempt {row.attempt}"].append(row)
        first = self._first.setdefault(key, row)
        alike = [each for each in self._again if (each[0].count == each[1].count) == (first.count == row.count)]
        if first is not row and len(alike) < PIECES:
            self._again.append((first, row))

    def evidence(self) -> list[dict[str, Any]]:
        """Return `evidence` of the room's state at the last call of `numbers`: the first pieces of each kind."""
        found = [_of_a_copy(first, row) for first, row in self._again]
        for kind, words in WITHOUT_RECORD.items():
            keys = (key for window in sorted(self._missing) for key in self._missing[window][kind])
            for window, ip in islice(keys, PIECES):
                found.append({"kind": kind, "words": f"{ip}, {clock(window)}: {words}", "entries": []})
        for words in self._across.examples.get(Anomaly.TORN_BATCH, [])[:PIECES]:
            rows = self._attempts[words.partition(":")[0]]
            found.append({"kind": "torn", "words": words, "entries": [row.shown() for row in rows]})
        right = (row for key, row in self._first.items() if row.count == self.expected.get(key))
        for row in islice(right, PIECES):
            found.append({"kind": "delivered", "words": f"{_result(row)}: {_place(row)}", "entries": [row.shown()]})
        return found

    def close(self, watermark_ms: int, undecided: Collection[Key] = ()) -> None:
        """Close the windows that end at the watermark or before. Results that are `undecided` may still come."""
        self._closed_ms, self._undecided = max(self._closed_ms, watermark_ms), frozenset(undecided)

    @property
    def awaited(self) -> int:
        """The number of results that are expected, and were not due when `numbers` was last called."""
        return len(self.expected) - self._total[DUE]

    def numbers(self) -> dict[str, Any]:
        """Return the verdict of the room's state."""
        self._judge()
        awaited, total = self.awaited, self._total
        numbers = {
            "expected": total[DUE] + awaited,
            "delivered": total[Fate.DELIVERED],
            "awaited": awaited,
            "lost": total[Anomaly.LOST],
            "duplicated": total[Fate.DUPLICATED],
            "conflicting": total[Anomaly.CONFLICT],
            "torn": self._across.counts[Anomaly.TORN_BATCH],
        }
        return {**NO_VERDICT, **numbers, **self._judged(numbers)}

    def _judged(self, numbers: dict[str, int]) -> dict[str, str]:
        errors = {name: numbers[name] for name in ("lost", "duplicated", "conflicting", "torn")}
        errors["with a wrong count"] = self._total[Anomaly.OVERCOUNT] + self._total[Anomaly.UNDERCOUNT]
        errors["without any request"] = self._total[Anomaly.PHANTOM]
        errors["out of order"] = self._across.counts[Anomaly.NONMONOTONIC]
        why = ", ".join(f"{number:,} {name}" for name, number in errors.items() if number)
        if why:
            return {"word": "invalid", "why": why}
        if numbers["delivered"]:
            return {"word": "valid", "why": "everything that was due is there once"}
        return {}

    def _judge(self) -> None:
        """Audit the windows with new rows and those that still await a result, and the batches if rows are new."""
        if self._changed:
            self._across = AnomalyTally()
            self._batches.judge_order(self._across)
            if self._batches.have_totals:
                self._batches.judge_whole(self._across)
        awaited = [window for window, ips in list(self._ips.items()) if self._found[window][DUE] < len(ips)]
        for window in self._changed.union(awaited):
            self._judge_window(window)
        self._changed.clear()

    def _judge_window(self, window: int) -> None:
        closed = window + WINDOW_MS <= self._closed_ms
        keys = [(window, ip) for ip in tuple(self._ips[window])]
        missing = [key for key in keys if key not in self._first]
        lost = [key for key in missing if closed and key not in self._undecided]
        self._missing[window] = {"lost": lost, "awaited": [key for key in missing if key not in lost]}
        if not missing:
            del self._missing[window]
        due = set(keys).difference(missing).union(lost)
        judged = audit({key: self.expected[key] for key in due}, self._results[window])
        found = judged.counts + Counter(
            {DUE: len(due), Fate.DELIVERED: judged.delivered, Fate.DUPLICATED: judged.duplicated}
        )
        self._total.subtract(self._found[window])
        self._total.update(found)
        self._found[window] = found


def _of_a_copy(first: Row, again: Row) -> dict[str, Any]:
    """Return the evidence that a result is there twice, as in "192.0.2.3, 00:00:15: batch 3 and batch 3"."""
    where = [_place(row) for row in (first, again)]
    kind, words = "duplicated", f"{where[0]} and {where[1]}"
    if first.count != again.count:
        kind, words = "conflicting", f"{first.count} in {where[0]}, {again.count} in {where[1]}"
    return {"kind": kind, "words": f"{_result(again)}: {words}", "entries": [first.shown(), again.shown()]}


def _result(row: Row) -> str:
    return f"{row.ip}, {clock(row.window) if row.window is not None else ''}"


def _place(row: Row) -> str:
    return f"batch {row.batch}" if row.batch is not None else f"offset {row.offset}"
