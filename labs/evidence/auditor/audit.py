"""The auditor: compares the results that a reader observed with the expected ones, and judges the run.

It sees only plain records and knows nothing of Kafka or Spark, so it can judge any pipeline. `expected` must not
come from the pipeline: `expected.py` counts the log itself, and says in what it still depends on the pipeline.

Guarantee: "valid" means that every expected result was read exactly once with the right count, apart from requests
that were dropped as late, and that no other evidence contradicts it. Each anomaly is judged separately, so one
failure may show as several. Limitations: the auditor judges only what was read, and only by the evidence that it is
given; `Audit.judged` lists the anomalies that this evidence could have shown.

Evidence beside the results comes from a second reader, from sentinels, and from the source topic.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Container, Iterable, Iterator, Mapping

from labs.evidence.auditor.anomalies import Anomaly, AnomalyTally, Audit, Fate, Verdict
from labs.evidence.auditor.observed import Key, Reading, Result, SourceHistory, describe


def audit(
    expected: Mapping[Key, int],
    observed: Iterable[Result] | None,
    *,
    late_dropped: int | Mapping[Key, int] = 0,
    indeterminate: int = 0,
    source: SourceHistory | None = None,
    second_reader: Iterable[Result] | None = None,
    aborted: Collection[str] | None = None,
    sentinels: Mapping[int, bool] | None = None,
    reader_error: str | None = None,
) -> Audit:
    """Judge the results that a reader `observed`, in any order; None means that nothing could be read.

    expected       number of requests per (window start in epoch milliseconds, IP)
    late_dropped   how many requests were dropped as late: per result, which is exact, or in total, which
                   explains the missing requests only if exactly so many are missing
    indeterminate  how many of the requests in `expected` were sent but never acknowledged; if requests are
                   missing, but not more than these and the late ones, the verdict is unknown, because the
                   unacknowledged ones may never have been stored
    source         what was sent against what the source topic holds
    second_reader  what another reader of the same topic observed
    aborted        the attempts whose transactions were aborted, such as those that only read_uncommitted shows
    sentinels      partition -> whether the last record written to it could be read; a `Reading` adds its `decided`
    reader_error   why the reader stopped before the end; missing results are then not called lost

    Evidence of an error makes the verdict invalid even if the reader failed. The distinct results are held in
    memory; a million take about 2 s and 0.2 GB more than the results themselves. `audit_parts` needs less.
    """
    if observed is None:
        observed, reader_error = (), reader_error or "nothing could be read"
    sentinels = _what_could_be_read(sentinels, observed, second_reader)
    if second_reader is not None:
        observed = list(observed)
    return audit_parts(
        [(expected, observed)],
        late_dropped=late_dropped,
        indeterminate=indeterminate,
        source=source,
        readers=None if second_reader is None else (observed, second_reader),
        aborted=aborted,
        sentinels=sentinels,
        reader_error=reader_error,
    )


def audit_parts(
    parts: Iterable[tuple[Mapping[Key, int], Iterable[Result]]],
    *,
    late_dropped: int | Mapping[Key, int] = 0,
    indeterminate: int = 0,
    source: SourceHistory | None = None,
    readers: tuple[Iterable[Result], Iterable[Result]] | None = None,
    aborted: Collection[str] | None = None,
    sentinels: Mapping[int, bool] | None = None,
    reader_error: str | None = None,
) -> Audit:
    """Judge results that come in parts, of which only one is in memory at a time.

    A part has all that was expected and all that was observed of its windows. `readers` is what two readers of the
    same topic observed; everything else is as in `audit`.
    """
    complete = reader_error is None
    late, late_total = (late_dropped, 0) if isinstance(late_dropped, Mapping) else ({}, late_dropped)
    tally, batches = AnomalyTally(), Batches()
    comparison = Comparison(batches, tally)
    for expected, observed in parts:
        comparison.judge(expected, observed, late)
        del expected, observed  # before the next part is read
    comparison.judge_short_counts(late_total, indeterminate, complete)

    # An anomaly that is not listed here needs only the results themselves.
    evidence = {
        Anomaly.LOST: complete,
        Anomaly.ABORTED_READ: aborted is not None and batches.have_attempts,
        Anomaly.NONMONOTONIC: batches.have_positions,
        Anomaly.TORN_BATCH: batches.have_totals and complete,
        Anomaly.READERS_DISAGREE: readers is not None and complete,
        Anomaly.HANGING_TRANSACTION: bool(sentinels) and complete,
        Anomaly.SOURCE_LOST: source is not None,
        Anomaly.SOURCE_DUPLICATE: source is not None,
    }
    if aborted is not None and evidence[Anomaly.ABORTED_READ]:
        batches.judge_aborted(aborted, tally)
    if evidence[Anomaly.NONMONOTONIC]:
        batches.judge_order(tally)
    if evidence[Anomaly.TORN_BATCH]:
        batches.judge_whole(tally)
    if readers is not None and evidence[Anomaly.READERS_DISAGREE]:
        judge_readers(*readers, tally)
    if sentinels and evidence[Anomaly.HANGING_TRANSACTION]:
        judge_sentinels(sentinels, tally)
    if source is not None:
        judge_source(source, tally)
        # `indeterminate` and `source` may describe the same sends.
        indeterminate = max(indeterminate, sum(source.indeterminate.values()))
    if indeterminate:
        sentence = "{} sends were never acknowledged"
        tally.add(Anomaly.INDETERMINATE, sentence, indeterminate, times=indeterminate)

    reasons = [comparison.doubt, comparison.note]
    if not complete:
        read = f"{comparison.expected - comparison.unread:,} of {comparison.expected:,} expected results were read"
        reasons.insert(0, f"{reader_error}; {read}")
    if not comparison.expected and not comparison.records:
        reasons.append("nothing was expected and nothing was read")
    if any(anomaly.is_error for anomaly in tally.counts):
        verdict = Verdict.INVALID
    elif not complete or comparison.doubt or not (comparison.expected or comparison.records):
        verdict = Verdict.UNKNOWN
    else:
        verdict = Verdict.VALID
    return Audit(
        verdict=verdict,
        reason="; ".join(filter(None, reasons)),
        expected=comparison.expected,
        observed=comparison.records,
        counts=tally.counts,
        examples=tally.examples,
        by_window=comparison.by_window,
        judged=frozenset(anomaly for anomaly in Anomaly if evidence.get(anomaly, True)),
    )


def _what_could_be_read(sentinels: Mapping[int, bool] | None, *readings: Iterable[Result] | None) -> dict[int, bool]:
    """Return partition -> whether all evidence agrees that its reader could read it to the end."""
    decided = dict(sentinels or {})
    for reading in readings:
        for partition, was_read in reading.decided.items() if isinstance(reading, Reading) else ():
            decided[partition] = was_read and decided.get(partition, True)
    return decided


class Comparison:
    """What became of each result, one window and IP at a time.

    Every expected result is delivered, lost, wrong, explained by late requests, or in doubt; if the read was not
    complete, it may also be unread.
    """

    def __init__(self, batches: Batches, tally: AnomalyTally) -> None:
        self.expected = self.records = 0  # results that were expected, records that were observed
        self.by_window: dict[Fate, Counter[int]] = {fate: Counter() for fate in Fate}
        self.unread = 0  # results that an incomplete read does not contain
        self.doubt = ""  # why nobody can tell whether something was lost
        self.note = ""  # why late requests do not explain what is missing
        self._batches, self._tally = batches, tally
        self._short: list[tuple[Key, int, int | None]] = []  # key, count due, count found if any
        self._first: dict[Key, Result] = {}
        self._again: dict[Key, list[Result]] = {}

    def judge(self, expected: Mapping[Key, int], observed: Iterable[Result], late: Mapping[Key, int]) -> None:
        """Judge every result except those with too small a count; `late` has the late requests of each result.

        Call it again for the results of other windows.
        """
        self._index(observed)
        self.expected += len(expected)
        due = dict(expected)
        for key, times in late.items():
            if key in due and times > due[key]:
                self.doubt = f"{times:,} late requests are said of {describe(key)}, which has {due[key]:,}"
            elif times and key in due:
                due[key] -= times
                self._add_late(key, times, expected[key])
        delivered, wrong = self.by_window[Fate.DELIVERED], self.by_window[Fate.WRONG]
        for key, count in due.items():
            first = self._first.get(key)
            if first is None:
                if count > 0:
                    self._short.append((key, count, None))
            elif key in self._again and self._judge_copies(key):
                wrong[key[0]] += 1
            elif first.count == count:
                delivered[key[0]] += 1
            elif first.count < count:
                self._short.append((key, count, first.count))
            else:
                wrong[key[0]] += 1
                self._tally.add(Anomaly.OVERCOUNT, "{} instead of {}", first.count, count, key=key)
        for key in sorted(self._first.keys() - due.keys(), key=str):
            wrong[key[0]] += 1
            self._tally.add(Anomaly.PHANTOM, "{}, though there was no request", self._first[key].count, key=key)
            if key in self._again:
                self._judge_copies(key)
        self._first, self._again = {}, {}

    def _index(self, observed: Iterable[Result]) -> None:
        """Index the observed results in one pass, and note their batches."""
        first = self._first
        for result in self._batches.collect(observed):
            key = (result.window_start, result.ip)
            if key in first:
                self._again.setdefault(key, []).append(result)
            else:
                first[key] = result
        self.records += len(first) + sum(map(len, self._again.values()))

    def judge_short_counts(self, late: int, indeterminate: int, complete: bool) -> None:
        """Judge the results with too small a count; `late` and `indeterminate` are numbers of requests in total.

        `complete` tells whether everything was read; if not, nothing is called lost.
        """
        if not complete:
            self.unread = sum(found is None for *_, found in self._short)
            self._short = [short for short in self._short if short[-1] is not None]
        missing = sum(due - (found or 0) for _, due, found in self._short)
        if missing and missing == late and complete:
            for key, due, found in self._short:
                self._add_late(key, due - (found or 0), due)
                if found is not None:
                    self.by_window[Fate.DELIVERED][key[0]] += 1
        elif missing and missing <= late + indeterminate and (missing > late or not complete):
            self.doubt = f"{missing:,} missing requests may be among {indeterminate:,} unacknowledged"
            self.doubt += f" and {late:,} late ones" if late else " ones"
        else:
            if late and complete:
                self.note = f"{late:,} late requests do not account for {missing:,} missing ones"
            for key, due, found in self._short:
                self._judge_short(key, due, found)

    def _judge_short(self, key: Key, due: int, found: int | None) -> None:
        if found is None:
            self.by_window[Fate.LOST][key[0]] += 1
            self._tally.add(Anomaly.LOST, "{} expected, no record", due, key=key)
        else:
            self.by_window[Fate.WRONG][key[0]] += 1
            self._tally.add(Anomaly.UNDERCOUNT, "{} instead of {}", found, due, key=key)

    def _judge_copies(self, key: Key) -> bool:
        """Report a result that is there more than once, and tell whether its counts are unequal."""
        first, again = self._first[key], self._again[key]
        self.by_window[Fate.DUPLICATED][key[0]] += len(again)
        for copy in again:
            if copy.count != first.count:
                self._tally.add(Anomaly.CONFLICT, _in_words, first, *again, key=key)
                return True
        self._tally.add(Anomaly.DUPLICATE, _in_words, first, *again, key=key, times=len(again))
        return False

    def _add_late(self, key: Key, dropped: int, of: int) -> None:
        sentence = "{} of {} requests came too late"
        self._tally.add(Anomaly.LATE_DROPPED, sentence, dropped, of, key=key, times=dropped)


def _in_words(*copies: Result) -> str:
    # Without attempts and offsets, so that the sentence is the same in every run of a lesson.
    batches = ("" if copy.batch_id is None else f" in batch {copy.batch_id}" for copy in copies)
    counts = [f"{copy.count}{batch}" for copy, batch in zip(copies, batches, strict=True)]
    return ", then ".join(counts[:3]) + (f", and {len(counts) - 3} more" if len(counts) > 3 else "")


class Batches:
    """Judges the micro-batches: was each attempt read completely, in order, and only if committed?

    The evidence is the headers and positions of the results; results without them are not judged. Rows are collected
    per (partition, batch, attempt); memory grows with those, not with the rows.
    """

    def __init__(self) -> None:
        self._rows: defaultdict[tuple[int | None, int | None, str | None], AttemptRows] = defaultdict(AttemptRows)

    def collect(self, results: Iterable[Result]) -> Iterator[Result]:
        """Pass the results on, and note their batches."""
        latest, rows = None, AttemptRows()
        for result in results:
            where = (result.partition, result.batch_id, result.attempt)
            if where != latest:  # rows of one attempt mostly come one after the other
                latest, rows = where, self._rows[where] if where[1:] != (None, None) else AttemptRows()
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


class AttemptRows:
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


def judge_readers(first: Iterable[Result], second: Iterable[Result], tally: AnomalyTally) -> None:
    """Report each record that only one of two readers saw.

    The second reader may, for example, read at the end what the first one has followed all the time. Records are
    compared by their content and, if each record of both readers has an offset, by partition and offset too.
    """
    readers = {"first": Counter(map(_identity, first)), "second": Counter(map(_identity, second))}
    if any(offset is None for records in readers.values() for *_, offset in records):
        readers = {name: _without_positions(records) for name, records in readers.items()}
    for name, other in (("first", "second"), ("second", "first")):
        only = readers[name] - readers[other]
        for window_start, ip, count, partition, offset in sorted(only, key=str):
            record = (window_start, ip, count, partition, offset)
            sentence = "the count {}{} was seen {} times more by the {} reader than by the {}"
            where = "" if offset is None else f" at partition {partition}, offset {offset}"
            times = only[record]
            values = (count, where, times, name, other)
            tally.add(Anomaly.READERS_DISAGREE, sentence, *values, key=(window_start, ip), times=times)


def _identity(result: Result) -> tuple:
    return result.window_start, result.ip, result.count, result.partition, result.offset


def _without_positions(records: Counter[tuple]) -> Counter[tuple]:
    merged: Counter[tuple] = Counter()
    for (*content, _, _), times in records.items():
        merged[(*content, None, None)] += times
    return merged


def judge_sentinels(readable: Mapping[int, bool], tally: AnomalyTally) -> None:
    """Report each partition whose sentinel (the last record written to it) could not be read."""
    for partition, was_read in sorted(readable.items()):
        if not was_read:
            sentence = "partition {}: its last record cannot be read"
            tally.add(Anomaly.HANGING_TRANSACTION, sentence, partition)


def judge_source(source: SourceHistory, tally: AnomalyTally) -> None:
    """Report source records that are stored fewer times than acknowledged, or more times than sent."""
    for key in dict.fromkeys((*source.acknowledged, *source.stored)):
        acknowledged, stored = source.acknowledged.get(key, 0), source.stored.get(key, 0)
        sent = acknowledged + source.indeterminate.get(key, 0)
        if stored < acknowledged:
            sentence = "acknowledged {} times, stored {} times"
            times = acknowledged - stored
            tally.add(Anomaly.SOURCE_LOST, sentence, acknowledged, stored, key=key, times=times)
        elif stored > sent:
            sentence = "sent {} times, stored {} times"
            tally.add(Anomaly.SOURCE_DUPLICATE, sentence, sent, stored, key=key, times=stored - sent)


LOST_ACKNOWLEDGEMENT = "lost acknowledgement"


Cause = tuple[str, int]  # what happened, and the batch of the copy


def count_repeats(results: Iterable[Result]) -> Counter[Cause]:
    """Count the repeated records by their cause and batch; the results are in the order of the log.

    If both records have the same header `attempt`, an acknowledgement was lost and the producer sent the record again.
    All other repeated records come from a restart after a crash. The batch in flight at the crash is the last one
    before another attempt writes the same batch or an earlier one (header `batch_id`). Raises ValueError for a record
    without these headers. Limitations: one partition; a crash that left no visible record is not seen.
    """
    copies: Counter[Cause] = Counter()
    attempts: dict[tuple[int, str], set[str]] = {}
    crash, last_batch, last_attempt = "", -1, ""
    for result in results:
        batch, attempt = result.batch_id, result.attempt
        if batch is None or attempt is None:
            raise ValueError(f"the record at offset {result.offset} has no headers for its batch and attempt")
        if attempt != last_attempt and batch <= last_batch:
            crash = f"crash in batch {last_batch}"
        last_batch, last_attempt = batch, attempt
        seen = attempts.setdefault((result.window_start, result.ip), set())
        if seen:
            copies[LOST_ACKNOWLEDGEMENT if attempt in seen else crash, batch] += 1
        seen.add(attempt)
    return copies
