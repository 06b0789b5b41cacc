"""The parts of a workload: the input, the expected results, and a checker that does not use Kafka.

A workload names each result that it expects, such as (partition 0, record 17). `result_of` finds the name in a record
that the job wrote. So all checkers share one rule: each name must be there exactly once.

Guarantee: "valid" means that each expected result was read exactly once, and that nothing else was read. Limitations:
the job's records have no headers for batch and attempt. So ABORTED_READ cannot be judged, and the checker knows only
what a read_committed reader saw.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple, Protocol

from labs.equipment.plain_text import one_line
from labs.evidence.auditor.audit import judge_sentinels
from labs.evidence.auditor.verdict import Anomaly, AnomalyTally, Audit, Fate, Verdict

Name = Hashable  # of an expected result
SHOWN = 60  # characters of a record that a sentence shows

# What these mean without the micro-batches of the lab's own pipeline.
MEANINGS = {
    Anomaly.DUPLICATE: "A result is there more than once.",
    Anomaly.TORN_BATCH: "Only one of the two postings of a transfer is there: money was made or lost.",
    Anomaly.NONMONOTONIC: "Two records of one source partition are in the wrong order in a sink partition.",
    Anomaly.PHANTOM: "The sink topic holds a record that is no expected result.",
}


class Input(NamedTuple):
    """A record for the source topic."""

    partition: int
    key: bytes
    value: bytes


class Output(NamedTuple):
    """A record that was read from the sink topic."""

    partition: int
    offset: int
    value: bytes | None

    def __str__(self) -> str:
        text = "no value" if self.value is None else one_line(self.value[:SHOWN].decode(errors="replace"))
        return f"partition {self.partition}, offset {self.offset}: {text}"


@dataclass(frozen=True)
class Reading:
    """The records that could be read when the job was done.

    outputs   every record that a read_committed reader found at the end
    watched   every record that a read_committed reader saw during the run
    decided   partition -> whether all transactions in it had ended by then
    error     why the run stopped before its end; missing results are then not called lost
    """

    outputs: Sequence[Output]
    watched: Sequence[Output] | None = None
    decided: Mapping[int, bool] = field(default_factory=dict)
    error: str | None = None


class Workload(Protocol):
    """Records to send, and the results of a correct job."""

    name: str
    partitions: int  # of both topics
    inputs: list[Input]  # in the order of sending
    closing: list[Input]  # sent after them: one record for each partition, which tells the end
    aborted: list[Input]  # sent before them, in a transaction that is aborted: nothing may come out of it
    due: dict[Any, int]  # name of a result -> index of the input that makes it due; closing records follow the inputs
    last: set[Any]  # the results of the closing records: when they are committed, the job is done

    def result_of(self, output: Output) -> Name | None:
        """Return the name of the result in a record; None if nobody expects the record."""

    def audit(self, reading: Reading) -> Audit:
        """Judge what was read."""


def audit_names(
    expected: Iterable[Name],
    reading: Reading,
    result_of: Callable[[Output], Name | None],
    describe: Callable[[Any], str],
    judge_more: Callable[[dict[Any, list[Output]], AnomalyTally], object] = lambda found, tally: None,
    judged_more: Iterable[Anomaly] = (),
    note: str = "",
) -> Audit:
    """Judge a workload in which each result must be there exactly once.

    `describe` names a result in a sentence. `judge_more` gets the records by result, and reports further anomalies,
    those in `judged_more`. `note` is a remark for the reason.
    """
    names, tally, complete = set(expected), AnomalyTally(), reading.error is None
    found: dict[Any, list[Output]] = {}
    for output in reading.outputs:
        name = result_of(output)
        if name is None:
            tally.add(Anomaly.PHANTOM, "{}", output)
        else:
            found.setdefault(name, []).append(output)
    for name, copies in found.items():
        if len(copies) > 1:
            tally.add(Anomaly.DUPLICATE, _copies_in_words, describe(name), copies, times=len(copies) - 1)
    missing = sorted(names - found.keys(), key=str)
    for name in missing if complete else ():
        tally.add(Anomaly.LOST, "{} is not there", describe(name))
    judge_more(found, tally)
    judge_decided(reading, tally)
    judge_watched(reading, tally)
    delivered = len(found)
    reasons = [f"{reading.error}; {delivered:,} of {len(names):,} expected results were read"] if not complete else []
    reasons += [note] if note else []
    by_window: dict[Fate, Counter[int]] = {fate: Counter() for fate in Fate}  # a single "window": there is no time
    by_window[Fate.DELIVERED][0] = delivered
    by_window[Fate.DUPLICATED][0] = tally.counts[Anomaly.DUPLICATE]
    by_window[Fate.LOST][0] = tally.counts[Anomaly.LOST]
    judged = {Anomaly.DUPLICATE, Anomaly.PHANTOM, *judged_more, *_judged_by(reading)}
    return Audit(
        verdict=verdict_of(tally.counts, complete),
        expected=len(names),
        observed=len(reading.outputs),
        counts=tally.counts,
        examples=tally.examples,
        by_window=by_window,
        judged=frozenset(judged),
        reason="; ".join(reasons),
    )


def verdict_of(counts: Counter[Anomaly], complete: bool) -> Verdict:
    """Return the verdict: an error is invalid, also in an incomplete run, and an incomplete run is never valid."""
    if any(anomaly.is_error and times for anomaly, times in counts.items()):
        return Verdict.INVALID
    return Verdict.VALID if complete else Verdict.UNKNOWN


def judge_decided(reading: Reading, tally: AnomalyTally) -> None:
    """Report each partition whose end an open transaction hides."""
    if reading.error is None:
        judge_sentinels(reading.decided, tally)


def judge_watched(reading: Reading, tally: AnomalyTally) -> None:
    """Report each record that a read_committed reader saw, and that is not there any more."""
    for output in sorted(set(reading.watched or ()) - set(reading.outputs)) if reading.error is None else ():
        tally.add(Anomaly.READERS_DISAGREE, "a reader saw it, and a later reader did not: {}", output)


def with_phantoms(audit: Audit, outputs: Sequence[Output]) -> Audit:
    """Return the audit with these records added, which are no results."""
    tally = AnomalyTally(Counter(audit.counts), {anomaly: list(found) for anomaly, found in audit.examples.items()})
    for output in outputs:
        tally.add(Anomaly.PHANTOM, "{}", output)
    if not outputs:
        return audit
    return replace(
        audit,
        verdict=Verdict.INVALID,
        observed=audit.observed + len(outputs),
        counts=tally.counts,
        examples=tally.examples,
    )


def _judged_by(reading: Reading) -> set[Anomaly]:
    """Return the anomalies that only a reading to the end can show."""
    evidence = {
        Anomaly.LOST: True,
        Anomaly.HANGING_TRANSACTION: bool(reading.decided),
        Anomaly.READERS_DISAGREE: reading.watched is not None,
    }
    return {anomaly for anomaly, is_there in evidence.items() if is_there and reading.error is None}


def _copies_in_words(name: str, copies: Sequence[Output]) -> str:
    places = [f"partition {each.partition}, offset {each.offset}" for each in copies]
    more = f", and {len(places) - 3} more" if len(places) > 3 else ""
    return f"{name} is there {len(copies)} times: {'; '.join(places[:3])}{more}"
