"""A log's counts and results, kept in files by windows, are judged as if all were in memory."""

from __future__ import annotations

import random
import tempfile
from collections import Counter, deque
from operator import attrgetter

import pytest

from labs.evidence.auditor.anomalies import Anomaly, Verdict
from labs.evidence.auditor.audit import audit, audit_parts
from labs.evidence.auditor.expected import count_by_window
from labs.evidence.auditor.observed import Result
from labs.pipeline.log.generate import Traffic
from labs.runs.window_parts import PARTS, PartsUnwritable, WindowParts

ACCESSES = list(Traffic(requests=6_000, clients=40, rate=10))


def results_of(counts: Counter[tuple[int, str]]) -> list[Result]:
    """Return a result for each count, in three batches, whose last records say how many rows their attempts wrote."""
    keys, results = sorted(counts), list[Result]()
    for batch_id in range(3):
        rows = keys[batch_id * len(keys) // 3 : (batch_id + 1) * len(keys) // 3]
        for n, key in enumerate(rows, start=1):
            total = len(rows) if n == len(rows) else None
            results.append(Result(*key, counts[key], batch_id, f"attempt {batch_id}", total, 0, len(results)))
    return results


def kept(accesses, results, in_memory: int) -> WindowParts:
    parts = WindowParts(in_memory)
    assert list(parts.watch(accesses)) == accesses
    assert list(parts.add(results)) == list(range(1, len(results) + 1))
    return parts


def spoiled(results: list[Result], seed: int) -> list[Result]:
    """Leave out a result, repeat one, change the count of one, and add one that nobody expects."""
    chance, spoiled = random.Random(seed), list(results)
    del spoiled[chance.randrange(len(spoiled) - 1)]
    spoiled.append(chance.choice(spoiled))
    at = chance.randrange(len(spoiled) - 1)
    changed = spoiled[at]
    spoiled[at] = Result(changed.window_start, changed.ip, changed.count + 1, *list_of_evidence(changed))
    return [*spoiled, Result(-5_000, "phantom", 1)]


def list_of_evidence(result: Result) -> list:
    return [result.batch_id, result.attempt, result.batch_rows, result.partition, result.offset]


@pytest.mark.parametrize("in_memory", [1, 100, 1_000_000])
def test_the_parts_have_all_and_each_window_is_in_one(in_memory):
    counts = count_by_window(ACCESSES)
    results = results_of(counts)
    parts = kept(ACCESSES, results, in_memory)
    for _ in range(2):  # they can be read again
        expected, found, windows = Counter[tuple[int, str]](), list[Result](), list[int]()
        for some, of_them in parts:
            expected.update(some)
            found += of_them
            windows += {window for window, _ in some} | {result.window_start for result in of_them}
        assert expected == counts
        assert sorted(found, key=attrgetter("offset")) == results
        assert len(windows) == len(set(windows))
    assert sum(1 for _ in parts) == (1 if in_memory == 1_000_000 else PARTS)


@pytest.mark.parametrize("in_memory", [10, 1_000, 1_000_000])
@pytest.mark.parametrize("seed", range(5))
def test_what_is_wrong_is_found_as_in_memory(in_memory, seed):
    counts = count_by_window(ACCESSES)
    results = spoiled(results_of(counts), seed)
    late = {min(counts): 1}
    whole = audit(counts, results, late_dropped=late)
    found = audit_parts(kept(ACCESSES, results, in_memory), late_dropped=late)
    assert found.counts == whole.counts
    assert {Anomaly.PHANTOM, Anomaly.OVERCOUNT} <= found.counts.keys()
    assert (found.verdict, found.expected, found.observed) == (Verdict.INVALID, whole.expected, whole.observed)
    assert (found.by_window, found.judged) == (whole.by_window, whole.judged)
    for anomaly, examples in whole.examples.items():
        assert sorted(found.examples[anomaly]) == sorted(examples)


def test_a_partition_that_is_not_decided_makes_the_parts_invalid_too():
    parts = kept(ACCESSES, results_of(count_by_window(ACCESSES)), 100)
    assert audit_parts(parts, sentinels={0: True}).valid
    assert audit_parts(parts, sentinels={0: False}).counts == {Anomaly.HANGING_TRANSACTION: 1}


def test_a_directory_that_cannot_be_written_is_a_clear_message(monkeypatch, tmp_path):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "gone"))
    with pytest.raises(PartsUnwritable, match=r"cannot keep counts in .*gone: No such file .* set TMPDIR"):
        deque(WindowParts(in_memory=10).watch(ACCESSES))
