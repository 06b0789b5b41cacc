"""The running verdict counts as the auditor does: compared on histories with every kind of trouble, cut anywhere."""

from __future__ import annotations

from random import Random

import pytest

from labs.evidence.auditor.audit import Anomaly, Result, audit
from labs.room.running_verdict import RunningVerdict
from labs.room.sink_log import Row

WINDOW = 5_000
NUMBERS = ("expected", "delivered", "lost", "duplicated", "conflicting")


def sent(verdict, *keys):
    """Send one access for each (window, IP)."""
    for _ in verdict.watch((window * WINDOW, ip) for window, ip in keys):
        pass


def row(window, ip, count=1, batch=0, attempt="a", rows=None, offset=0):
    return Row(offset, "row", "committed", 1, 0, batch, attempt, rows, window * WINDOW, ip, count)


def history(seed):
    """Return accesses, and rows as a broken pipeline may have published them."""
    random = Random(seed)
    accesses = [(random.randrange(8 * WINDOW), random.choice("abc")) for _ in range(60)]
    counts: dict = {}
    for time, ip in accesses:
        counts[time - time % WINDOW, ip] = counts.get((time - time % WINDOW, ip), 0) + 1
    batches: list[list] = [[] for _ in range(4)]
    for key, count in sorted(counts.items()):
        batches[min(3, key[0] // (2 * WINDOW))].append((key, count))
    rows: list[Row] = []
    for number in [0, 1, 1, 2, 3, random.randrange(4)][: random.randint(4, 6)]:
        attempt = f"{number}-{random.random()}"
        chosen = [each for each in batches[number] if random.random() < 0.95]
        for (window, ip), count in chosen:
            count += random.random() < 0.05
            written = len(chosen) + (random.random() < 0.1)
            rows.append(Row(len(rows), "row", "committed", 1, 0, number, attempt, written, window, ip, count))
    if random.random() < 0.3:
        rows.append(Row(len(rows), "row", "plain", 1, 0, 9, "phantom", 1, 20 * WINDOW, "z", 1))
    return accesses, counts, rows


@pytest.mark.parametrize("seed", range(200))
def test_it_ends_with_the_auditors_numbers_whatever_has_happened(seed):
    accesses, counts, rows = history(seed)
    verdict, random = RunningVerdict(), Random(seed)
    sending = verdict.watch(accesses)
    for _ in accesses:
        next(sending)
    done = 0
    while rows_left := rows[done:]:
        some = rows_left[: random.randint(1, 5)]
        verdict.add(some)
        verdict.close(random.randrange(0, done + 1))  # never so far that anything is lost too early
        done += len(some)
    verdict.close(100 * WINDOW)
    judged = audit(
        counts,
        [Result(r.window, r.ip, r.count, r.batch, r.attempt, r.rows, 0, r.offset) for r in rows],
    )
    shown = verdict.numbers()
    assert {name: shown[name] for name in NUMBERS} == {name: getattr(judged, name) for name in NUMBERS}
    assert shown["torn"] == judged.counts[Anomaly.TORN_BATCH]
    assert shown["word"] == str(judged.verdict), (shown, str(judged))
    assert shown["awaited"] == 0


def test_the_histories_hold_every_kind_of_trouble():
    found = set()
    for seed in range(200):
        _, counts, rows = history(seed)
        results = [Result(r.window, r.ip, r.count, r.batch, r.attempt, r.rows, 0, r.offset) for r in rows]
        found |= {anomaly for anomaly, number in audit(counts, results).counts.items() if number}
    wanted = {Anomaly.LOST, Anomaly.DUPLICATE, Anomaly.CONFLICT, Anomaly.TORN_BATCH, Anomaly.NONMONOTONIC}
    assert wanted | {Anomaly.OVERCOUNT, Anomaly.PHANTOM} <= found


def test_nothing_is_lost_before_its_window_is_closed_by_a_noted_batch():
    verdict = RunningVerdict()
    sent(verdict, (0, "a"), (1, "a"))
    verdict.close(WINDOW - 1)
    assert (verdict.numbers()["awaited"], verdict.numbers()["lost"]) == (2, 0)
    verdict.close(WINDOW)
    assert (verdict.numbers()["awaited"], verdict.numbers()["lost"]) == (1, 1)
    assert verdict.numbers()["word"] == "invalid"


def test_what_lies_in_an_open_transaction_is_awaited_and_not_lost():
    verdict = RunningVerdict()
    sent(verdict, (0, "a"), (0, "b"))
    verdict.close(WINDOW, {(0, "a")})
    assert (verdict.numbers()["awaited"], verdict.numbers()["lost"]) == (1, 1)


def test_a_result_that_comes_after_it_was_called_lost_is_delivered():
    verdict = RunningVerdict()
    sent(verdict, (0, "a"))
    verdict.close(WINDOW)
    verdict.add([row(0, "a")])
    shown = verdict.numbers()
    assert (shown["delivered"], shown["lost"], shown["duplicated"], shown["word"]) == (1, 0, 0, "valid")


def test_before_anything_is_delivered_nobody_knows():
    verdict = RunningVerdict()
    assert verdict.numbers()["word"] == "unknown"
    sent(verdict, (0, "a"))
    assert (verdict.numbers()["word"], verdict.numbers()["awaited"]) == ("unknown", 1)


def test_rows_of_an_earlier_batch_behind_those_of_a_later_one_are_out_of_order():
    verdict = RunningVerdict()
    sent(verdict, (0, "a"), (1, "a"))
    verdict.add([row(1, "a", batch=1, attempt="b"), row(0, "a", batch=0, offset=1)])
    assert verdict.numbers()["word"] == "invalid"
    assert "out of order" in verdict.numbers()["why"]


def test_the_first_copies_stay_as_evidence_with_both_their_records():
    verdict = RunningVerdict()
    sent(verdict, *((0, name) for name in "abcdefg"))
    verdict.add([row(0, name, batch=3, offset=n) for n, name in enumerate("abcdefg")])
    verdict.add([row(0, name, batch=3, offset=10 + n) for n, name in enumerate("abcdefg")])
    verdict.add([row(0, "a", count=9, batch=4, offset=20)])
    verdict.numbers()
    duplicated = [each for each in verdict.evidence() if each["kind"] == "duplicated"]
    assert [each["words"] for each in duplicated[:1]] == ["a, 00:00:00: batch 3 and batch 3"]
    assert [[entry["offset"] for entry in each["entries"]] for each in duplicated] == [[n, 10 + n] for n in range(5)]
    [conflict] = [each for each in verdict.evidence() if each["kind"] == "conflicting"]
    assert conflict["words"] == "a, 00:00:00: 1 in batch 3, 9 in batch 4"


def test_what_is_lost_or_awaited_is_named():
    verdict = RunningVerdict()
    sent(verdict, (0, "a"), (1, "b"))
    verdict.close(WINDOW)
    verdict.numbers()
    found = {each["kind"]: each["words"] for each in verdict.evidence()}
    assert found == {"lost": "a, 00:00:00: in no batch", "awaited": "b, 00:00:05: sent, and not readable yet"}
    verdict.add([row(0, "a")])
    verdict.numbers()
    assert [each["kind"] for each in verdict.evidence()] == ["awaited", "delivered"]


def test_what_is_delivered_or_torn_leads_to_its_records():
    verdict = RunningVerdict()
    sent(verdict, *((0, name) for name in "abcdefg"))
    verdict.add([row(0, "a", count=9, batch=2, attempt="x", offset=1)])  # not the right count
    verdict.add([row(0, name, batch=3, rows=9, offset=2 + n) for n, name in enumerate("bcdefg")])
    verdict.numbers()
    delivered = [each for each in verdict.evidence() if each["kind"] == "delivered"]
    assert [[entry["offset"] for entry in each["entries"]] for each in delivered] == [[n] for n in range(2, 7)]
    assert delivered[0]["words"] == "b, 00:00:00: batch 3"
    torn = {each["words"]: each["entries"] for each in verdict.evidence() if each["kind"] == "torn"}
    entries = torn["batch 3, attempt a: rows visible: 6 of 9"]
    assert [entry["offset"] for entry in entries] == list(range(2, 8))
