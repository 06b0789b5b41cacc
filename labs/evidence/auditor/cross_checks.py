"""Evidence beside the results: a second reader, sentinels, and the source topic."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

from labs.evidence.auditor.anomaly import Anomaly
from labs.evidence.auditor.observed import Result, SourceHistory
from labs.evidence.auditor.tally import AnomalyTally


def judge_readers(first: Iterable[Result], second: Iterable[Result], tally: AnomalyTally) -> None:
    """Report each record that only one of two readers saw: one watched all along, say, and one came later.

    Records are told apart by their positions if both readers noted them, else by what they say.
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
    """Report each partition whose sentinel, the record written to it last of all, could not be read."""
    for partition, was_read in sorted(readable.items()):
        if not was_read:
            sentence = "partition {}: what was written last cannot be read"
            tally.add(Anomaly.HANGING_TRANSACTION, sentence, partition)


def judge_source(source: SourceHistory, tally: AnomalyTally) -> None:
    """Report the records that the source topic holds too seldom or too often, given how each send ended."""
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
