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

from collections import Counter
from collections.abc import Collection, Iterable, Mapping

from labs.evidence.auditor.batches import Batches
from labs.evidence.auditor.comparison import Comparison
from labs.evidence.auditor.observed import Key, Reading, Result, SourceHistory
from labs.evidence.auditor.verdict import Anomaly, AnomalyTally, Audit, Fate, Verdict


def judge_readers(first: Iterable[Result], second: Iterable[Result], tally: AnomalyTally) -> None:
    """Report each record that only one of two readers saw, such as a reader that follows the topic and a later one.

    Records are compared by partition and offset if both readers noted them, else by their content.
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


def _identity(result: Result) -> tuple:
    return result.window_start, result.ip, result.count, result.partition, result.offset


def _without_positions(records: Counter[tuple]) -> Counter[tuple]:
    merged: Counter[tuple] = Counter()
    for (*content, _, _), times in records.items():
        merged[(*content, None, None)] += times
    return merged


__all__ = ["Anomaly", "Audit", "Fate", "Reading", "Result", "SourceHistory", "Verdict", "audit"]


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
                   explains the missing requests only if the two numbers are equal
    indeterminate  how many of the requests in `expected` were sent but never acknowledged; if no more are
                   missing, the verdict is unknown, because those may never have been stored
    source         what was sent against what the source topic holds
    second_reader  what another reader of the same topic observed
    aborted        the attempts whose transactions were aborted, such as those that only read_uncommitted shows
    sentinels      partition -> whether the last record written to it could be read; a `Reading` brings its own
    reader_error   why the reader stopped before the end; missing results are then not called lost

    Evidence of an error makes the verdict invalid even if the reader failed. The distinct results are held in
    memory; a million take about 2 s and 0.2 GB more than the results themselves.
    """
    if observed is None:
        observed, reader_error = (), reader_error or "nothing could be read"
    sentinels = _what_could_be_read(sentinels, observed, second_reader)
    if second_reader is not None:
        observed = list(observed)
    complete = reader_error is None
    late, late_total = (late_dropped, 0) if isinstance(late_dropped, Mapping) else ({}, late_dropped)
    tally, batches = AnomalyTally(), Batches()
    comparison = Comparison(observed, batches, tally)
    comparison.judge(expected, late)
    comparison.judge_short_counts(late_total, indeterminate, complete)

    # An anomaly that is not listed here needs only the results themselves.
    evidence = {
        Anomaly.LOST: complete,
        Anomaly.ABORTED_READ: aborted is not None and batches.have_attempts,
        Anomaly.NONMONOTONIC: batches.have_positions,
        Anomaly.TORN_BATCH: batches.have_totals and complete,
        Anomaly.READERS_DISAGREE: second_reader is not None and complete,
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
    if second_reader is not None and evidence[Anomaly.READERS_DISAGREE]:
        judge_readers(observed, second_reader, tally)
    if evidence[Anomaly.HANGING_TRANSACTION]:
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
        read = f"{len(expected) - comparison.unread:,} of {len(expected):,} expected results were read"
        reasons.insert(0, f"{reader_error}; {read}")
    if not expected and not comparison.records:
        reasons.append("nothing was expected and nothing was read")
    if any(anomaly.is_error for anomaly in tally.counts):
        verdict = Verdict.INVALID
    elif not complete or comparison.doubt or not (expected or comparison.records):
        verdict = Verdict.UNKNOWN
    else:
        verdict = Verdict.VALID
    return Audit(
        verdict=verdict,
        reason="; ".join(filter(None, reasons)),
        expected=len(expected),
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
