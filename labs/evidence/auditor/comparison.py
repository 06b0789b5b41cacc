"""Compares observed with expected results, one window and IP at a time.

`count_repeats` finds out where duplicates come from, by the headers `batch_id` and `attempt` and by the log's order.
Two copies within one attempt: a producer lost an acknowledgement and sent the record again. All other copies come
from a restart; the batch in flight at the crash is the last one before the log goes back to an earlier batch.
Limitations: one partition; a crash that left no visible record is not seen.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

from labs.evidence.auditor.batches import Batches
from labs.evidence.auditor.observed import Key, Result
from labs.evidence.auditor.verdict import Anomaly, AnomalyTally, Fate

LOST_ACKNOWLEDGEMENT = "lost acknowledgement"
Cause = tuple[str, int]  # what happened, and the batch of the copy


def count_repeats(results: Iterable[Result]) -> Counter[Cause]:
    """Count the copies by their cause and batch. Raises ValueError for a record without headers."""
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


class Comparison:
    """What became of each result.

    Every expected result is delivered, lost, wrong, explained by late records, or in doubt.
    """

    def __init__(self, observed: Iterable[Result], batches: Batches, tally: AnomalyTally) -> None:
        """Index the observed results in one pass, which also fills `batches`."""
        self.by_window: dict[Fate, Counter[int]] = {fate: Counter() for fate in Fate}
        self.unread = 0  # results that an incomplete read does not contain
        self.doubt = ""  # why nobody can tell whether something was lost
        self.note = ""  # why late requests do not explain what is missing
        self._tally = tally
        self._short: list[tuple[Key, int, int | None]] = []  # key, count due, count found if any
        self._first: dict[Key, Result] = {}
        self._again: dict[Key, list[Result]] = {}
        first = self._first
        for result in batches.collect(observed):
            key = (result.window_start, result.ip)
            if key in first:
                self._again.setdefault(key, []).append(result)
            else:
                first[key] = result
        self.records = len(self._first) + sum(map(len, self._again.values()))

    def judge(self, expected: Mapping[Key, int], late: Mapping[Key, int]) -> None:
        """Judge every result except those with too small a count; `late` is how many requests each lacks as late."""
        due = dict(expected)
        for key, times in late.items():
            if times and key in due:
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
