"""Tiny histories written by hand: one per anomaly, in which nothing else must be found."""

import json
import random
import subprocess
import sys
from collections import Counter
from dataclasses import replace
from typing import Any

import pytest

from labs.evidence.auditor.audit import Anomaly, Audit, Fate, Result, SourceHistory, Verdict, audit

NOON = 1_740_830_400_000  # 2025-03-01T12:00:00Z
LATER = NOON + 5_000
A, B = "203.0.113.1", "2001:db8::1"
EXPECTED = {(NOON, A): 3, (NOON, B): 2, (LATER, A): 4}
CLEAN = [Result(window, ip, count) for (window, ip), count in EXPECTED.items()]
FIRST, SECOND, THIRD = CLEAN


def found(judged: Audit) -> dict[Anomaly, int]:
    return dict(judged.counts)


def test_more_late_requests_than_a_result_has_are_a_doubt():
    judged = audit({(NOON, A): 3}, [], late_dropped={(NOON, A): 5})
    assert not judged.valid
    assert "5 late requests are said of" in judged.reason


def batch(batch_id: int, attempt: str, *counts: int, partition=0, offset=0, rows=None) -> list[Result]:
    """Return one result per count, of IPs that no other batch has, and the expectation that they fulfil.

    `rows` is what every record says of the batch's size; without it only the last record says so.
    """
    results = [
        Result(NOON, f"10.0.{batch_id}.{i}", count, batch_id, attempt, rows, partition, offset + i)
        for i, count in enumerate(counts)
    ]
    if rows is None:
        results[-1] = replace(results[-1], batch_rows=len(counts))
    return results


def fulfilled(*results: Result) -> dict[tuple[int, str], int]:
    return {(result.window_start, result.ip): result.count for result in results}


# Verdicts


def test_each_result_once_with_the_right_count_is_valid():
    judged = audit(EXPECTED, CLEAN)
    assert judged.verdict is Verdict.VALID
    assert judged.valid
    assert found(judged) == {}
    assert (judged.expected, judged.delivered, judged.observed, judged.duplicated, judged.lost) == (
        3,
        3,
        3,
        0,
        0,
    )
    assert judged.reason == ""


def test_a_generator_can_be_audited():
    assert audit(EXPECTED, iter(CLEAN), second_reader=iter(CLEAN)).valid


def test_nothing_readable_is_unknown_and_calls_nothing_lost():
    judged = audit(EXPECTED, None)
    assert judged.verdict is Verdict.UNKNOWN
    assert not judged.valid
    assert found(judged) == {}
    assert judged.reason == "nothing could be read; 0 of 3 expected results were read"
    judged = audit(EXPECTED, None, reader_error="no broker answered")
    assert judged.reason == "no broker answered; 0 of 3 expected results were read"
    assert judged.why == "no broker answered; 0 of 3 expected results were read."


def test_why_says_what_was_found_in_one_line():
    assert audit(EXPECTED, CLEAN).why == ""
    assert audit(EXPECTED, [*CLEAN[1:], CLEAN[2]]).why == (
        "LOST 1: An expected result is not there. DUPLICATE 1: A result is there again, with an equal count."
    )


def test_a_reader_that_failed_at_once_is_unknown_and_says_why():
    judged = audit(EXPECTED, [], reader_error="no broker answered")
    assert judged.verdict is Verdict.UNKNOWN
    assert found(judged) == {}
    assert "no broker answered" in judged.reason


def test_a_reader_that_stopped_early_is_unknown_even_if_all_it_read_is_right():
    judged = audit(EXPECTED, CLEAN[:2], reader_error="timed out")
    assert judged.verdict is Verdict.UNKNOWN
    assert found(judged) == {}
    assert judged.reason == "timed out; 2 of 3 expected results were read"
    assert audit(EXPECTED, CLEAN[:2], reader_error="timed out", late_dropped=1).reason == judged.reason
    assert Anomaly.LOST not in judged.judged
    assert audit(EXPECTED, CLEAN, reader_error="timed out").verdict is Verdict.UNKNOWN


def test_a_reader_that_stopped_early_still_proves_what_it_saw():
    judged = audit(EXPECTED, [FIRST, FIRST], reader_error="timed out")
    assert judged.verdict is Verdict.INVALID
    assert found(judged) == {Anomaly.DUPLICATE: 1}


def test_a_reader_that_failed_proves_neither_a_hanging_transaction_nor_a_torn_batch():
    judged = audit(
        EXPECTED,
        [replace(FIRST, batch_id=0, attempt="x", batch_rows=3)],
        reader_error="timed out",
        sentinels={0: False},
        second_reader=CLEAN,
    )
    assert judged.verdict is Verdict.UNKNOWN
    assert found(judged) == {}


def test_an_empty_topic_that_was_read_is_lost_and_not_unknown():
    judged = audit(EXPECTED, [])
    assert judged.verdict is Verdict.INVALID
    assert found(judged) == {Anomaly.LOST: 3}


def test_nothing_expected_and_nothing_read_is_unknown():
    judged = audit({}, [])
    assert judged.verdict is Verdict.UNKNOWN
    assert judged.reason == "nothing was expected and nothing was read"


def test_an_audit_refuses_to_be_taken_for_true():
    with pytest.raises(TypeError, match=r"audit\.valid"):
        bool(audit(EXPECTED, CLEAN))


# Results


def test_a_missing_result_is_lost():
    judged = audit(EXPECTED, [FIRST, SECOND])
    assert found(judged) == {Anomaly.LOST: 1}
    assert judged.verdict is Verdict.INVALID
    assert (judged.lost, judged.delivered) == (1, 2)
    assert judged.examples[Anomaly.LOST] == ["2025-03-01T12:00:05Z 203.0.113.1: 4 expected, no record"]


def test_an_equal_copy_is_a_duplicate_and_the_result_still_delivered():
    judged = audit(EXPECTED, [*CLEAN, replace(FIRST, batch_id=7)])
    assert found(judged) == {Anomaly.DUPLICATE: 1}
    assert judged.verdict is Verdict.INVALID
    assert (judged.duplicated, judged.delivered, judged.observed) == (1, 3, 4)
    assert judged.examples[Anomaly.DUPLICATE] == ["2025-03-01T12:00:00Z 203.0.113.1: 3, then 3 in batch 7"]


def test_each_further_copy_is_one_more_duplicate():
    judged = audit(EXPECTED, [*CLEAN, *[FIRST] * 4, *[SECOND] * 2])
    assert found(judged) == {Anomaly.DUPLICATE: 6}
    assert judged.examples[Anomaly.DUPLICATE] == [
        "2025-03-01T12:00:00Z 203.0.113.1: 3, then 3, then 3, and 2 more",
        "2025-03-01T12:00:00Z 2001:db8::1: 2, then 2, then 2",
    ]


def test_the_same_ip_in_another_window_is_no_duplicate():
    assert audit({(NOON, A): 3, (LATER, A): 3}, [FIRST, replace(FIRST, window_start=LATER)]).valid


@pytest.mark.parametrize("counts", [(3, 4), (4, 3), (3, 3, 4), (1, 2)])
def test_unequal_copies_are_one_conflict_and_not_delivered(counts):
    copies = [replace(FIRST, count=count) for count in counts]
    judged = audit(EXPECTED, [*copies, SECOND, THIRD])
    assert found(judged) == {Anomaly.CONFLICT: 1}
    assert judged.verdict is Verdict.INVALID
    assert (judged.conflicting, judged.duplicated, judged.delivered) == (1, len(counts) - 1, 2)
    assert judged.by_window[Fate.WRONG] == {NOON: 1}


def test_a_count_too_small_is_an_undercount_and_not_lost():
    judged = audit(EXPECTED, [replace(FIRST, count=2), SECOND, THIRD])
    assert found(judged) == {Anomaly.UNDERCOUNT: 1}
    assert judged.verdict is Verdict.INVALID
    assert (judged.delivered, judged.lost) == (2, 0)
    assert judged.by_window[Fate.WRONG] == {NOON: 1}
    assert judged.examples[Anomaly.UNDERCOUNT] == ["2025-03-01T12:00:00Z 203.0.113.1: 2 instead of 3"]


def test_a_count_too_large_is_an_overcount():
    judged = audit(EXPECTED, [replace(FIRST, count=6), SECOND, THIRD])
    assert found(judged) == {Anomaly.OVERCOUNT: 1}
    assert judged.verdict is Verdict.INVALID
    assert judged.delivered == 2


def test_equal_copies_of_a_wrong_count_are_both_wrong_and_duplicate():
    low = replace(FIRST, count=2)
    judged = audit(EXPECTED, [low, low, SECOND, THIRD])
    assert found(judged) == {Anomaly.UNDERCOUNT: 1, Anomaly.DUPLICATE: 1}


def test_a_result_that_nobody_expected_is_a_phantom():
    judged = audit(EXPECTED, [*CLEAN, Result(NOON, "198.51.100.9", 1)])
    assert found(judged) == {Anomaly.PHANTOM: 1}
    assert judged.verdict is Verdict.INVALID


def test_results_where_nothing_was_expected_are_phantoms_and_not_unknown():
    judged = audit({}, CLEAN)
    assert found(judged) == {Anomaly.PHANTOM: 3}
    assert (judged.verdict, judged.reason) == (Verdict.INVALID, "")


# Late records


def test_late_records_known_per_result_explain_a_smaller_count_and_a_missing_result():
    late = {(NOON, A): 1, (LATER, A): 4}
    judged = audit(EXPECTED, [replace(FIRST, count=2), SECOND], late_dropped=late)
    assert found(judged) == {Anomaly.LATE_DROPPED: 5}
    assert judged.verdict is Verdict.VALID
    assert (judged.delivered, judged.lost) == (2, 0)
    assert judged.examples[Anomaly.LATE_DROPPED][0] == (
        "2025-03-01T12:00:00Z 203.0.113.1: 1 of 3 requests came too late"
    )


@pytest.mark.parametrize(
    ("count", "anomaly"),
    [(1, Anomaly.UNDERCOUNT), (3, Anomaly.OVERCOUNT), (None, Anomaly.LOST)],
)
def test_late_records_known_per_result_explain_no_more_than_they_are(count, anomaly):
    results = [SECOND, THIRD] if count is None else [replace(FIRST, count=count), SECOND, THIRD]
    judged = audit(EXPECTED, results, late_dropped={(NOON, A): 1})
    assert found(judged) == {anomaly: 1, Anomaly.LATE_DROPPED: 1}
    assert judged.verdict is Verdict.INVALID


def test_late_records_of_one_result_do_not_explain_another():
    judged = audit(EXPECTED, [replace(FIRST, count=2), SECOND, THIRD], late_dropped={(NOON, B): 1})
    assert found(judged) == {Anomaly.UNDERCOUNT: 1, Anomaly.OVERCOUNT: 1, Anomaly.LATE_DROPPED: 1}


def test_a_log_of_which_every_record_was_late_rightly_has_no_results():
    judged = audit(EXPECTED, [], late_dropped=EXPECTED)
    assert judged.verdict is Verdict.VALID
    assert found(judged) == {Anomaly.LATE_DROPPED: 9}


def test_late_records_of_a_result_that_nobody_expected_explain_nothing():
    judged = audit(EXPECTED, CLEAN, late_dropped={(NOON, "198.51.100.9"): 2, (NOON, A): 0})
    assert judged.valid
    assert found(judged) == {}


def test_late_records_explain_nothing_for_certain_if_the_reader_stopped_early():
    judged = audit(EXPECTED, [replace(FIRST, count=2)], late_dropped=1, reader_error="timed out")
    assert judged.verdict is Verdict.UNKNOWN
    assert found(judged) == {}


def test_a_total_of_late_records_that_equals_what_is_missing_explains_it():
    judged = audit(EXPECTED, [replace(FIRST, count=2), SECOND], late_dropped=5)
    assert found(judged) == {Anomaly.LATE_DROPPED: 5}
    assert judged.verdict is Verdict.VALID
    assert judged.by_window[Fate.DELIVERED] == {NOON: 2}
    assert judged.lost == 0


@pytest.mark.parametrize("late", [1, 4, 6])
def test_a_total_of_late_records_that_differs_from_what_is_missing_explains_nothing(late):
    judged = audit(EXPECTED, [replace(FIRST, count=2), SECOND], late_dropped=late)
    assert found(judged) == {Anomaly.UNDERCOUNT: 1, Anomaly.LOST: 1}
    assert judged.verdict is Verdict.INVALID
    assert judged.reason == f"{late} late requests do not account for 5 missing ones"


# Sends without an acknowledgement


def test_an_indeterminate_send_is_no_error():
    judged = audit(EXPECTED, CLEAN, indeterminate=2)
    assert found(judged) == {Anomaly.INDETERMINATE: 2}
    assert judged.verdict is Verdict.VALID


@pytest.mark.parametrize("late", [0, 1])
def test_what_indeterminate_sends_may_explain_is_neither_lost_nor_valid(late):
    judged = audit(EXPECTED, [replace(FIRST, count=1), SECOND, THIRD], indeterminate=2, late_dropped=late)
    assert judged.verdict is Verdict.UNKNOWN
    assert found(judged) == {Anomaly.INDETERMINATE: 2}
    late_ones = f" and {late} late ones" if late else " ones"
    assert judged.reason == f"2 missing requests may be among 2 unacknowledged{late_ones}"


def test_more_missing_than_indeterminate_sends_is_lost():
    judged = audit(EXPECTED, [FIRST, SECOND], indeterminate=3)
    assert judged.verdict is Verdict.INVALID
    assert found(judged) == {Anomaly.LOST: 1, Anomaly.INDETERMINATE: 3}


# Batches


def test_batches_seen_whole_and_in_order_are_valid_if_the_last_row_says_how_many():
    results = [*batch(0, "a", 1, 2), *batch(1, "b", 3, offset=3), *batch(2, "c", 4, 5, 6, offset=5)]
    judged = audit(fulfilled(*results), results, aborted=["d"])
    assert judged.valid
    assert judged.judged >= {Anomaly.TORN_BATCH, Anomaly.NONMONOTONIC, Anomaly.ABORTED_READ}


def test_batches_seen_whole_are_valid_if_every_row_says_how_many():
    results = [*batch(0, "a", 1, 2, rows=2), *batch(1, "b", 3, rows=1, offset=3)]
    assert audit(fulfilled(*results), results).valid


def test_a_batch_spread_over_partitions_is_whole():
    one, two, three = batch(0, "a", 1, 2, 3)
    results = [replace(one, partition=1), two, replace(three, partition=1)]
    assert audit(fulfilled(*results), results).valid


@pytest.mark.parametrize("rows", [None, 3])
@pytest.mark.parametrize("missing", [0, 2])
def test_a_batch_of_which_a_row_is_not_visible_is_torn(rows, missing):
    results = [*batch(0, "a", 1, 2, 3, rows=rows), *batch(1, "b", 1, rows=rows and 1, offset=9)]
    del results[missing]
    judged = audit(fulfilled(*results), results)
    assert found(judged) == {Anomaly.TORN_BATCH: 1}
    assert judged.verdict is Verdict.INVALID


def test_a_torn_attempt_is_not_made_whole_by_the_next_attempt():
    torn, whole = batch(0, "a", 1, 2)[:1], batch(0, "b", 1, 2, offset=5)
    judged = audit(fulfilled(*whole), [*torn, *whole])
    assert found(judged) == {Anomaly.TORN_BATCH: 1, Anomaly.DUPLICATE: 1}
    [example] = judged.examples[Anomaly.TORN_BATCH]
    assert example == "batch 0, attempt a: rows visible: 1, but not the last one"


def test_a_sink_that_never_says_how_many_rows_there_are_is_not_judged_for_torn_batches():
    results = [replace(result, batch_rows=None) for result in batch(0, "a", 1, 2)]
    judged = audit(fulfilled(*results), results)
    assert judged.valid
    assert Anomaly.TORN_BATCH not in judged.judged


def test_records_without_headers_do_not_make_a_batch():
    results = [*batch(0, "a", 1, 2), FIRST]
    assert audit(fulfilled(*results), results).valid


def test_rows_behind_those_of_a_later_batch_are_nonmonotonic():
    results = [*batch(2, "c", 1, 2, offset=10), *batch(1, "b", 3, offset=13), *batch(3, "d", 4, offset=15)]
    judged = audit(fulfilled(*results), results)
    assert found(judged) == {Anomaly.NONMONOTONIC: 1}
    assert judged.verdict is Verdict.INVALID
    [example] = judged.examples[Anomaly.NONMONOTONIC]
    assert example == "partition 0: batch 1 at offset 13, behind batch 2 at offset 10"


def test_a_later_batch_in_the_middle_of_another_is_nonmonotonic():
    one, two, three = batch(1, "a", 1, 2, 3)
    results = [one, *batch(2, "b", 4, offset=5), replace(two, offset=6), replace(three, offset=7)]
    for order_of_reading in (results, results[::-1]):
        assert found(audit(fulfilled(*results), order_of_reading)) == {Anomaly.NONMONOTONIC: 1}


def test_a_batch_in_the_middle_of_a_later_one_is_nonmonotonic():
    results = [*batch(2, "b", 1, offset=10), *batch(1, "a", 2, offset=11)]
    results += [Result(NOON, A, 3, 2, "b", 2, partition=0, offset=12)]
    for order_of_reading in (results, results[::-1]):
        assert found(audit(fulfilled(*results), order_of_reading)) == {Anomaly.NONMONOTONIC: 1}


def test_each_batch_behind_any_later_one_is_counted():
    results = [*batch(3, "c", 1, offset=1), *batch(1, "a", 2, offset=3), *batch(2, "b", 3, offset=5)]
    assert found(audit(fulfilled(*results), results)) == {Anomaly.NONMONOTONIC: 2}


def test_the_order_of_batches_is_judged_within_each_partition_and_not_by_the_order_of_reading():
    results = [*batch(5, "a", 1, partition=1, offset=3), *batch(4, "b", 2, partition=0, offset=9)]
    results += batch(2, "c", 3, partition=1, offset=2)
    assert audit(fulfilled(*results), results).valid


def test_a_batch_written_again_does_not_go_back():
    results = [*batch(4, "a", 1, 2, offset=0), *batch(4, "b", 1, 2, offset=3), *batch(5, "c", 1, offset=6)]
    assert found(audit(fulfilled(*results), results)) == {Anomaly.DUPLICATE: 2}


@pytest.mark.parametrize("missing", ["batch_id", "partition", "offset"])
def test_results_without_a_batch_or_a_position_are_not_judged_for_order(missing):
    results = [*batch(2, "b", 1, offset=0), *batch(1, "a", 2, offset=5)]
    nothing: dict[str, Any] = {missing: None}
    results = [replace(result, **nothing) for result in results]
    judged = audit(fulfilled(*results), results)
    assert judged.valid
    assert Anomaly.NONMONOTONIC not in judged.judged


def test_a_result_without_an_offset_does_not_hinder_the_judgement_of_the_others():
    one, two = batch(1, "a", 1, 2)
    results = [one, replace(two, offset=None), *batch(2, "b", 3, offset=5)]
    judged = audit(fulfilled(*results), results)
    assert judged.valid
    assert Anomaly.NONMONOTONIC in judged.judged


def test_reading_the_rows_of_an_aborted_attempt_is_reported_for_each_row():
    results = [*batch(0, "a", 1, 2), *batch(1, "b", 3, 4, 5, offset=4)]
    judged = audit(fulfilled(*results), results, aborted={"b"})
    assert found(judged) == {Anomaly.ABORTED_READ: 3}
    assert judged.verdict is Verdict.INVALID
    assert judged.examples[Anomaly.ABORTED_READ] == [
        "attempt b at batch 1 was aborted, yet 3 of its rows were read, partition 0 from offset 4"
    ]


def test_an_aborted_attempt_without_offsets_is_reported_without_a_place():
    judged = audit(EXPECTED, [replace(FIRST, batch_id=1, attempt="b"), SECOND, THIRD], aborted={"b"})
    [example] = judged.examples[Anomaly.ABORTED_READ]
    assert example == "attempt b at batch 1 was aborted, yet 1 of its rows were read"


def test_results_without_attempts_are_not_judged_for_aborted_reads():
    assert Anomaly.ABORTED_READ not in audit(EXPECTED, CLEAN, aborted={"b"}).judged


# Other evidence


def test_readers_that_saw_the_same_agree_in_any_order():
    assert audit(EXPECTED, CLEAN, second_reader=CLEAN[::-1]).valid


def test_a_record_that_only_one_reader_saw_makes_them_disagree():
    for second in (CLEAN[:2], [*CLEAN, FIRST], [replace(FIRST, count=9), SECOND, THIRD]):
        judged = audit(EXPECTED, CLEAN, second_reader=second)
        assert set(found(judged)) == {Anomaly.READERS_DISAGREE}
        assert judged.verdict is Verdict.INVALID
    assert judged.counts[Anomaly.READERS_DISAGREE] == 2
    sentence = "the count 3 was seen 1 times more by the first reader than by the second"
    assert judged.examples[Anomaly.READERS_DISAGREE][0] == f"2025-03-01T12:00:00Z 203.0.113.1: {sentence}"


def test_readers_that_saw_equal_results_at_different_offsets_disagree():
    at_5, at_9 = (replace(FIRST, partition=0, offset=offset) for offset in (5, 9))
    expected = fulfilled(FIRST)
    judged = audit(expected, [at_5], second_reader=[at_9])
    assert found(judged) == {Anomaly.READERS_DISAGREE: 2}
    assert "the count 3 at partition 0, offset 5 was seen" in judged.examples[Anomaly.READERS_DISAGREE][0]
    assert audit(expected, [at_5], second_reader=[FIRST]).valid


def test_a_sentinel_that_cannot_be_read_is_a_hanging_transaction():
    judged = audit(EXPECTED, CLEAN, sentinels={0: True, 1: False})
    assert found(judged) == {Anomaly.HANGING_TRANSACTION: 1}
    assert judged.verdict is Verdict.INVALID
    assert audit(EXPECTED, CLEAN, sentinels={0: True, 1: True}).valid


def test_a_source_that_holds_what_was_acknowledged_is_valid():
    sent = Counter({(NOON + 17, A): 2, (NOON + 18, B): 1})
    judged = audit(EXPECTED, CLEAN, source=SourceHistory(acknowledged=sent, stored=sent))
    assert judged.valid
    assert found(judged) == {}


def test_an_acknowledged_record_that_is_not_stored_is_lost_at_the_source():
    history = SourceHistory(acknowledged={(NOON + 17, A): 3}, stored={(NOON + 17, A): 1})
    judged = audit(EXPECTED, CLEAN, source=history)
    assert found(judged) == {Anomaly.SOURCE_LOST: 2}
    assert judged.verdict is Verdict.INVALID
    assert judged.examples[Anomaly.SOURCE_LOST] == [
        "2025-03-01T12:00:00.017Z 203.0.113.1: acknowledged 3 times, stored 1 times"
    ]


def test_a_record_stored_more_often_than_sent_is_a_source_duplicate():
    sent, again = {(NOON, A): 1}, {(NOON, A): 2, (NOON, B): 1}
    judged = audit(EXPECTED, CLEAN, source=SourceHistory(acknowledged=sent, stored=again))
    assert found(judged) == {Anomaly.SOURCE_DUPLICATE: 2}
    assert judged.verdict is Verdict.INVALID


@pytest.mark.parametrize("said_twice", [0, 2])
@pytest.mark.parametrize("stored", [1, 2, 3])
def test_an_unacknowledged_record_may_be_stored_or_not(stored, said_twice):
    history = SourceHistory({(NOON, A): 1}, {(NOON, A): stored}, indeterminate={(NOON, A): 2})
    judged = audit(EXPECTED, CLEAN, source=history, indeterminate=said_twice)
    assert found(judged) == {Anomaly.INDETERMINATE: 2}
    assert judged.verdict is Verdict.VALID


def test_unacknowledged_records_of_the_source_do_not_excuse_lost_results():
    history = SourceHistory({}, {}, indeterminate={(NOON, A): 99})
    assert audit(EXPECTED, CLEAN[:2], source=history).counts[Anomaly.LOST] == 1


def test_a_source_that_lost_records_is_invalid_even_if_the_results_cannot_be_read():
    history = SourceHistory(acknowledged={(NOON, A): 1}, stored={})
    judged = audit(EXPECTED, None, source=history)
    assert judged.verdict is Verdict.INVALID
    assert found(judged) == {Anomaly.SOURCE_LOST: 1}


# The report


def test_without_further_evidence_only_the_results_are_judged():
    assert set(Anomaly) - audit(EXPECTED, CLEAN).judged == {
        Anomaly.ABORTED_READ,
        Anomaly.TORN_BATCH,
        Anomaly.NONMONOTONIC,
        Anomaly.READERS_DISAGREE,
        Anomaly.HANGING_TRANSACTION,
        Anomaly.SOURCE_LOST,
        Anomaly.SOURCE_DUPLICATE,
    }


def test_only_late_and_indeterminate_records_are_no_errors():
    assert {anomaly for anomaly in Anomaly if not anomaly.is_error} == {
        Anomaly.LATE_DROPPED,
        Anomaly.INDETERMINATE,
    }


def test_the_text_shows_the_verdict_the_numbers_and_the_first_three_examples():
    expected = {(NOON + 5_000 * i, A): 1 for i in range(1200)}
    judged = audit(expected, [])
    assert str(judged) == repr(judged)
    assert str(judged).splitlines() == [
        "audit: invalid",
        "  expected         1,200",
        "  delivered            0",
        "  observed             0",
        "  duplicated           0",
        "  lost             1,200",
        "LOST 1,200: An expected result is not there.",
        "    2025-03-01T12:00:00Z 203.0.113.1: 1 expected, no record",
        "    2025-03-01T12:00:05Z 203.0.113.1: 1 expected, no record",
        "    2025-03-01T12:00:10Z 203.0.113.1: 1 expected, no record",
    ]


def test_the_dictionary_is_ready_for_json():
    judged = audit(EXPECTED, [*CLEAN[:2], FIRST], sentinels={0: True})
    plain = json.loads(json.dumps(judged.as_dict()))
    assert plain.pop("examples").keys() == {"LOST", "DUPLICATE"}
    assert "HANGING_TRANSACTION" not in plain["not_judged"]
    assert "TORN_BATCH" in plain.pop("not_judged")
    assert plain == {
        "verdict": "invalid",
        "reason": "",
        "expected": 3,
        "delivered": 2,
        "observed": 3,
        "duplicated": 1,
        "lost": 1,
        "conflicting": 0,
        "anomalies": {"LOST": 1, "DUPLICATE": 1},
    }


def test_an_unknown_verdict_is_always_shown_with_its_reason():
    judged = audit(EXPECTED, [], reader_error="<no broker>")
    assert str(judged).startswith("audit: unknown (<no broker>; 0 of 3 expected results were read)\n")
    assert ">unknown</b> (&lt;no broker&gt;; 0 of 3 expected results were read)" in judged._repr_html_()
    assert "()" not in audit(EXPECTED, CLEAN)._repr_html_()


def test_the_html_escapes_what_a_pipeline_wrote():
    html = audit(EXPECTED, [*CLEAN, Result(NOON, "<script>", 1)])._repr_html_()
    assert "<script>" not in html
    assert "&lt;script&gt;" in html


@pytest.mark.parametrize(
    ("window", "ip", "sentence"),
    [
        (10**20, A, "100000000000000000000 ms 203.0.113.1: 1"),
        (NOON, "\x1b[2J", r"2025-03-01T12:00:00Z '\x1b[2J': 1"),
        (NOON, "x" * 1000, f"2025-03-01T12:00:00Z {'x' * 80}…: 1"),
    ],
)
def test_garbage_is_described_without_harm(window, ip, sentence):
    [example] = audit(EXPECTED, [*CLEAN, Result(window, ip, 1)]).examples[Anomaly.PHANTOM]
    assert example.startswith(sentence)


def test_windows_tell_where_results_were_delivered_duplicated_lost_and_wrong():
    judged = audit(EXPECTED, [FIRST, FIRST, replace(SECOND, count=9), Result(NOON - 5_000, A, 1)])
    assert judged.by_window == {
        Fate.DELIVERED: {NOON: 1},
        Fate.DUPLICATED: {NOON: 1},
        Fate.LOST: {LATER: 1},
        Fate.WRONG: {NOON: 1, NOON - 5_000: 1},
    }


@pytest.mark.parametrize("seed", range(50))
def test_every_expected_result_and_every_record_is_accounted_for_once(seed):
    chance = random.Random(seed)
    expected = {(NOON + 5_000 * w, ip): chance.randint(1, 3) for w in range(4) for ip in "abc"}
    keys = [*expected, (NOON, "phantom"), (LATER, "phantom")]
    records = [Result(*chance.choice(keys), chance.randint(1, 3)) for _ in range(chance.randint(1, 30))]
    judged = audit(expected, records)
    again = audit(expected, chance.sample(records, len(records)))

    number = {fate: judged.by_window[fate].total() for fate in Fate}
    phantoms = judged.counts[Anomaly.PHANTOM]
    assert judged.expected == judged.delivered + judged.lost + number[Fate.WRONG] - phantoms
    assert judged.observed == judged.delivered + judged.duplicated + number[Fate.WRONG]
    assert judged.observed == len({(r.window_start, r.ip) for r in records}) + judged.duplicated
    assert judged.counts == again.counts
    copies = Counter((r.window_start, r.ip, r.count) for r in records)
    assert judged.valid == (copies == {(window, ip, count): 1 for (window, ip), count in expected.items()})


@pytest.mark.bench
def test_the_auditor_needs_only_the_standard_library():
    program = """
import sys
before = set(sys.modules)
import labs.evidence.auditor.audit
print({name.partition(".")[0] for name in set(sys.modules) - before} - sys.stdlib_module_names)
"""
    process = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert process.stdout.strip() == "{'labs'}"
