"""The auditor: compares the results that were observed with those that were expected, and judges.

It knows nothing of Kafka or Spark, only plain records, so it can judge any pipeline. `expected` must come
from an independent path, such as counting the log itself.

Guarantee: valid means that every expected result was read exactly once with the right count, apart from
what late records explain, and that no other evidence given speaks against it. Each anomaly is judged by
itself, so one failure may show as several. Where it stops: it judges what was read, not what the reader left
out, and only by the evidence that it is given; `Audit.judged` says which anomalies that could have shown.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from labs.evidence.anomaly import Anomaly, Fate, Verdict
from labs.evidence.batches import Batches
from labs.evidence.comparison import Comparison
from labs.evidence.cross_checks import judge_readers, judge_sentinels, judge_source
from labs.evidence.findings import Findings
from labs.evidence.history import Key, Result, SourceHistory
from labs.evidence.verdict import Audit

__all__ = ["Anomaly", "Audit", "Fate", "Result", "SourceHistory", "Verdict", "audit"]


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
    sentinels      partition -> whether the record that was written to it last of all could be read
    reader_error   why the reader stopped before the end; what is missing is then not called lost

    Evidence of an error makes the verdict invalid even where the reader failed. It holds the distinct results
    in memory; a million take about 2 s and 0.2 GB more than the results themselves.
    """
    if observed is None:
        observed, reader_error = (), reader_error or "nothing could be read"
    if second_reader is not None:
        observed = list(observed)
    complete = reader_error is None
    late, late_total = (late_dropped, 0) if isinstance(late_dropped, Mapping) else ({}, late_dropped)
    findings, batches = Findings(), Batches()
    judged = set(Anomaly)

    def evidence(available: bool, *anomalies: Anomaly) -> bool:
        if not available:
            judged.difference_update(anomalies)
        return available

    comparison = Comparison(observed, batches, findings)
    comparison.judge(expected, late)
    comparison.settle(late_total, indeterminate, complete)
    evidence(complete, Anomaly.LOST)
    if evidence(aborted is not None and batches.have_attempts, Anomaly.ABORTED_READ):
        batches.judge_aborted(aborted, findings)
    if evidence(batches.have_positions, Anomaly.NONMONOTONIC):
        batches.judge_order(findings)
    if evidence(batches.have_totals and complete, Anomaly.TORN_BATCH):
        batches.judge_whole(findings)
    if evidence(second_reader is not None and complete, Anomaly.READERS_DISAGREE):
        judge_readers(observed, second_reader, findings)
    if evidence(bool(sentinels) and complete, Anomaly.HANGING_TRANSACTION):
        judge_sentinels(sentinels, findings)
    if evidence(source is not None, Anomaly.SOURCE_LOST, Anomaly.SOURCE_DUPLICATE):
        judge_source(source, findings)
        # The same sends may be described in both ways.
        indeterminate = max(indeterminate, sum(source.indeterminate.values()))
    if indeterminate:
        sentence = "{} sends were never acknowledged"
        findings.add(Anomaly.INDETERMINATE, sentence, indeterminate, times=indeterminate)

    reasons = [comparison.doubt, comparison.note]
    if not complete:
        read = f"{len(expected) - comparison.unread:,} of {len(expected):,} expected results were read"
        reasons.insert(0, f"{reader_error}; {read}")
    if not expected and not comparison.records:
        reasons.append("nothing was expected and nothing was read")
    if any(anomaly.is_error for anomaly in findings.counts):
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
        counts=findings.counts,
        examples=findings.examples,
        by_window=comparison.by_window,
        judged=frozenset(judged),
    )
