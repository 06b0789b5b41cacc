"""The auditor: compares the results that were observed with those that were expected, and judges.

It knows nothing of Kafka or Spark, only plain records, so it can judge any pipeline. `expected` must come
from an independent path, such as counting the log itself; how far that is independent, `expected.py` says.

Guarantee: valid means that every expected result was read exactly once with the right count, apart from
what late records explain, and that no other evidence given speaks against it. Each anomaly is judged by
itself, so one failure may show as several. Where it stops: it judges what was read, not what the reader left
out, and only by the evidence that it is given; `Audit.judged` says which anomalies that could have shown.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from labs.evidence.auditor.anomaly import Anomaly, Fate, Verdict
from labs.evidence.auditor.batches import Batches
from labs.evidence.auditor.comparison import Comparison
from labs.evidence.auditor.cross_checks import judge_readers, judge_sentinels, judge_source
from labs.evidence.auditor.observed import Key, Reading, Result, SourceHistory
from labs.evidence.auditor.tally import AnomalyTally
from labs.evidence.auditor.verdict import Audit

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
    late_dropped   how many of the requests came too late to be counted: per result, which is exact, or in
                   total, which explains what is missing only if the two are equal
    indeterminate  how many of the requests in `expected` were sent but never acknowledged; if no more than
                   that is missing the verdict is unknown, because nobody can tell whether it was lost
    source         what was sent against what the source topic holds
    second_reader  what another reader of the same topic observed
    aborted        the attempts whose transactions were aborted, as are those that only read_uncommitted shows
    sentinels      partition -> whether the record that was written to it last of all could be read; a `Reading`
                   knows by itself where it could not
    reader_error   why the reader stopped before the end; what is missing is then not called lost

    Evidence of an error makes the verdict invalid even where the reader failed. It holds the distinct results
    in memory; a million take about 2 s and 0.2 GB more than the results themselves.
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
    comparison.settle(late_total, indeterminate, complete)

    # What is not named here needs no other evidence than the results themselves.
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
        # The same sends may be described in both ways.
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
    """Return partition -> whether all evidence agrees that nothing in it was hidden from its reader."""
    decided = dict(sentinels or {})
    for reading in readings:
        for partition, was_read in reading.decided.items() if isinstance(reading, Reading) else ():
            decided[partition] = was_read and decided.get(partition, True)
    return decided
