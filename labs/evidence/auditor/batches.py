"""Judges the micro-batches behind the results: was each attempt read completely, in order, and only if committed?

The evidence is the headers and positions of the results. Results without them are not judged.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Container, Iterable, Iterator

from labs.evidence.auditor.observed import Result
from labs.evidence.auditor.verdict import Anomaly, AnomalyTally


class Rows:
    """The rows that one attempt at one batch left in one partition."""

    __slots__ = ("declared", "first", "last", "seen")

    def __init__(self) -> None:
        self.seen = 0
        self.declared: int | None = None  # rows of the attempt in all partitions
        self.first: int | None = None  # offset
        self.last: int | None = None

    def extend(self, offset: int) -> None:
        if self.first is None or self.last is None:
            self.first = self.last = offset
        elif offset > self.last:
            self.last = offset
        elif offset < self.first:
            self.first = offset


class Batches:
    """Collects the rows per (partition, batch, attempt); memory grows with those, not with the rows."""

    def __init__(self) -> None:
        self._rows: defaultdict[tuple[int | None, int | None, str | None], Rows] = defaultdict(Rows)

    def collect(self, results: Iterable[Result]) -> Iterator[Result]:
        """Pass the results on, and note their batches."""
        latest, rows = None, Rows()
        for result in results:
            where = (result.partition, result.batch_id, result.attempt)
            if where != latest:  # rows of one attempt mostly come one after the other
                latest, rows = where, self._rows[where] if where[1:] != (None, None) else Rows()
            rows.seen += 1
            if result.batch_rows is not None:
                rows.declared = max(rows.declared or 0, result.batch_rows)
            if result.offset is not None:
                rows.extend(result.offset)
            yield result

    @property
    def have_totals(self) -> bool:
        """Tell whether any row says how many rows its attempt wrote."""
        return any(rows.declared is not None for rows in self._rows.values())

    @property
    def have_positions(self) -> bool:
        """Tell whether any row has its batch, its partition and its offset."""
        return bool(self._ranges())

    @property
    def have_attempts(self) -> bool:
        return any(attempt is not None for _, _, attempt in self._rows)

    def judge_aborted(self, aborted: Container[str], tally: AnomalyTally) -> None:
        """Report every row of an attempt whose transaction was aborted."""
        for (partition, batch_id, attempt), rows in self._rows.items():
            if attempt in aborted:
                where = "" if rows.first is None else f", partition {partition} from offset {rows.first}"
                sentence = "attempt {} at batch {} was aborted, yet {} of its rows were read{}"
                values = (attempt, batch_id, rows.seen, where)
                tally.add(Anomaly.ABORTED_READ, sentence, *values, times=rows.seen)

    def judge_whole(self, tally: AnomalyTally) -> None:
        """Report each attempt of which fewer rows are visible than it wrote.

        Some sinks write the total only into the last row; an attempt without a total then lacks that row.
        Call it only if `have_totals`: a sink that never writes a total is not judged.
        """
        seen: Counter[tuple] = Counter()
        declared: dict[tuple, int] = {}
        for (_, *names), rows in self._rows.items():
            attempt = tuple(names)
            seen[attempt] += rows.seen
            if rows.declared is not None:
                declared[attempt] = max(declared.get(attempt, 0), rows.declared)
        for (batch_id, attempt), visible in seen.items():
            wrote = declared.get((batch_id, attempt))
            if wrote is None:
                sentence = "batch {}, attempt {}: rows visible: {}, but not the last one"
                tally.add(Anomaly.TORN_BATCH, sentence, batch_id, attempt, visible)
            elif visible < wrote:
                sentence = "batch {}, attempt {}: rows visible: {} of {}"
                tally.add(Anomaly.TORN_BATCH, sentence, batch_id, attempt, visible, wrote)

    def judge_order(self, tally: AnomalyTally) -> None:
        """Report each batch that has a row behind a row of a later batch, in the same partition.

        The same batch twice in a row is allowed. The order in which the results were given does not matter.
        """
        for partition, batches in sorted(self._ranges().items()):
            later_batch, later_first = None, float("inf")
            for batch_id, (first, last) in sorted(batches.items(), reverse=True):
                if last > later_first:
                    sentence = "partition {}: batch {} at offset {}, behind batch {} at offset {}"
                    values = (partition, batch_id, last, later_batch, later_first)
                    tally.add(Anomaly.NONMONOTONIC, sentence, *values)
                if first < later_first:
                    later_batch, later_first = batch_id, first

    def _ranges(self) -> dict[int, dict[int, tuple[int, int]]]:
        """Return partition -> batch -> its first and last offset there."""
        ranges: defaultdict[int, dict[int, tuple[int, int]]] = defaultdict(dict)
        for (partition, batch_id, _), rows in self._rows.items():
            if partition is None or batch_id is None or rows.first is None or rows.last is None:
                continue
            first, last = ranges[partition].get(batch_id, (rows.first, rows.last))
            ranges[partition][batch_id] = min(first, rows.first), max(last, rows.last)
        return ranges
