"""The checkers of the judge's workloads, with handwritten histories: one anomaly each, and a clean one."""

from __future__ import annotations

import json

import pytest

from labs.evidence.auditor.anomalies import Anomaly, Verdict
from labs.judging.workloads import Copy, Count, Output, Reading, Transfer, workload_called
from labs.pipeline.records import LATENESS_MS, result_value

COPY, TRANSFER, COUNT = Copy(6, 2, seed=1), Transfer(4, 2, seed=1), Count(3_000, 1, seed=1)


@pytest.mark.parametrize(("name", "keys"), [("copy", 20), ("count", 100), ("transfer", 4_000)])
def test_the_number_of_keys_can_be_chosen(name, keys):
    def different(**options):
        records = workload_called(name, None, None, 7, **options).inputs
        return len({record.key for record in records}), len({(record.partition, record.key) for record in records})

    assert different() == (keys, keys)
    assert different(keys=3) == ((3, 3) if name == "count" else (6, 6))


def test_the_size_of_the_records_of_a_copy_can_be_chosen():
    longest = max(len(record.value) for record in workload_called("copy", None, None, 7, size=5_000).inputs)
    assert 4_900 < longest < 5_020
    with pytest.raises(ValueError, match="to the workload copy only: the values of transfer have one form"):
        workload_called("transfer", None, None, 7, size=5_000)


def outputs(values, partition=0):
    return [Output(partition, offset, value) for offset, value in enumerate(values)]


def copied(partition):
    return [record.value for record in [*COPY.inputs, *COPY.closing] if record.partition == partition]


def both(first, second=None):
    return outputs(first, 0) + outputs(copied(1) if second is None else second, 1)


def posting(number, account, amount):
    return json.dumps({"id": number, "account": account, "amount": amount}).encode()


def postings():
    found = []
    for record in [*TRANSFER.inputs, *TRANSFER.closing]:
        order = json.loads(record.value)
        found.append(posting(order["id"], order["from"], -order["amount"]))
        found.append(posting(order["id"], order["to"], order["amount"]))
    return found


def counted():
    return [result_value(start, ip, count) for (start, ip), count in COUNT._expected.items()]


def anomalies(workload, read, **evidence):
    return dict(workload.audit(Reading(read, **evidence)).counts)


FIRST = copied(0)


@pytest.mark.parametrize(
    ("read", "expected"),
    [
        (both(FIRST), {}),
        (both(FIRST[1:]), {Anomaly.LOST: 1}),
        (both([*FIRST, FIRST[-1]]), {Anomaly.DUPLICATE: 1}),
        (both([*FIRST[:2], *FIRST]), {Anomaly.DUPLICATE: 2}),  # read again from the last offset: still in order
        (both([FIRST[1], FIRST[0], *FIRST[2:]]), {Anomaly.NONMONOTONIC: 1}),
        (both([*FIRST, b"0,0"]), {Anomaly.PHANTOM: 1}),
        (both([*FIRST, None, b"\x1b[31m"]), {Anomaly.PHANTOM: 2}),
        (both([*FIRST, *copied(1)], []), {}),  # a job may put everything into one partition
        ([], {Anomaly.LOST: 8}),
    ],
)
def test_a_copy_has_each_record_once_and_in_order(read, expected):
    assert anomalies(COPY, read) == expected


NO_CREDIT = {Anomaly.PHANTOM: 1, Anomaly.LOST: 1, Anomaly.TORN_BATCH: 1}
DEBIT_TWICE = postings()[:1] + postings()


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        (postings(), {}),
        (postings()[2:], {Anomaly.LOST: 2}),
        (postings()[1:], {Anomaly.LOST: 1, Anomaly.TORN_BATCH: 1}),
        (DEBIT_TWICE, {Anomaly.DUPLICATE: 1, Anomaly.TORN_BATCH: 1}),
        (postings()[:2] + postings(), {Anomaly.DUPLICATE: 2}),
        ([*postings(), posting(0, "alice", 1_000)], {Anomaly.PHANTOM: 1}),
        ([*postings(), posting(0, "carol", 1)], {Anomaly.PHANTOM: 1}),
        ([*postings()[:-1], postings()[-1].replace(b'"amount"', b'"amount": 7, "amount"')], NO_CREDIT),
        ([*postings()[:-1], postings()[-1].decode().encode("utf-16")], NO_CREDIT),
        ([*postings(), b'{"id": true, "account": "bob", "amount": 0}', b"[]", b"[" * 9_999], {Anomaly.PHANTOM: 3}),
    ],
)
def test_a_transfer_has_both_postings_once(values, expected):
    assert anomalies(TRANSFER, outputs(values)) == expected


def test_a_torn_transfer_makes_or_loses_money():
    audit = TRANSFER.audit(Reading(outputs(DEBIT_TWICE)))
    assert "money was made or lost" in audit.reason
    [example] = audit.examples[Anomaly.TORN_BATCH]
    assert example.startswith("transfer 0: ")
    assert "2 times" in example
    assert not TRANSFER.audit(Reading(outputs(postings()[:2] + postings()))).reason


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        (counted(), {}),
        (counted()[1:], {Anomaly.LOST: 1}),
        ([*counted(), counted()[0]], {Anomaly.DUPLICATE: 1}),
        ([*counted(), b"rubbish"], {Anomaly.PHANTOM: 1}),
    ],
)
def test_a_count_is_judged_by_the_auditor(values, expected):
    assert anomalies(COUNT, outputs(values)) == expected


def test_a_result_of_an_aborted_record_is_one_that_nobody_expects():
    payments = [json.loads(record.value) for record in TRANSFER.aborted]
    copies = [record.value for record in COPY.aborted]
    posted = [posting(each["id"], each["to"], each["amount"]) for each in payments]
    counts = [result_value(min(COUNT._expected)[0], record.key.decode(), 1) for record in COUNT.aborted]
    assert anomalies(COPY, [*both(FIRST), *outputs(copies, 2)]) == {Anomaly.PHANTOM: 2}
    assert anomalies(TRANSFER, [*outputs(postings()), *outputs(posted, 2)]) == {Anomaly.PHANTOM: 2}
    assert anomalies(COUNT, [*outputs(counted()), *outputs(counts, 2)]) == {Anomaly.PHANTOM: 1}


def test_a_record_that_vanished_and_an_open_transaction_are_reported():
    read = both(FIRST)
    gone = [*read, Output(0, 99, FIRST[0])]
    assert anomalies(COPY, read, watched=gone, decided={0: True}) == {Anomaly.READERS_DISAGREE: 1}
    assert anomalies(COPY, read, watched=read, decided={0: True, 1: False}) == {Anomaly.HANGING_TRANSACTION: 1}


def test_a_record_that_vanished_with_and_without_a_value_is_reported_twice():
    place = outputs([b"a", None])
    watched = [place[0], place[1]._replace(offset=place[0].offset)]
    found = COPY.audit(Reading(both(copied(0)), watched=watched))
    assert found.counts[Anomaly.READERS_DISAGREE] == 2


@pytest.mark.parametrize(
    ("workload", "read"),
    [(COPY, both(FIRST)), (TRANSFER, outputs(postings())), (COUNT, outputs(counted()))],
    ids=lambda each: getattr(each, "name", ""),
)
def test_only_what_vanished_is_a_disagreement_and_not_what_came_after_the_last_look(workload, read):
    decided = dict.fromkeys(range(workload.partitions), True)
    assert anomalies(workload, read, watched=read[:-1], decided=decided) == {}
    gone = read[-1]._replace(offset=9_999)
    assert anomalies(workload, read, watched=[*read, gone], decided=decided) == {Anomaly.READERS_DISAGREE: 1}


def test_a_transfer_half_of_which_is_missing_when_a_run_stopped_is_not_called_torn():
    audit = TRANSFER.audit(Reading(outputs(postings()[:3]), error="the job wrote nothing new for 60 s"))
    assert (audit.verdict, dict(audit.counts)) == (Verdict.UNKNOWN, {})
    assert "money" not in audit.reason
    assert TRANSFER.audit(Reading(outputs(DEBIT_TWICE), error="it ended")).verdict is Verdict.INVALID


@pytest.mark.parametrize("workload", [COPY, TRANSFER, COUNT], ids=lambda each: each.name)
def test_a_run_that_stopped_is_unknown_and_calls_nothing_lost(workload):
    audit = workload.audit(Reading([], [], error="the job wrote nothing new for 60 s"))
    assert (audit.verdict, audit.lost) == (Verdict.UNKNOWN, 0)
    assert audit.reason.startswith("the job wrote nothing new for 60 s")
    assert Anomaly.LOST not in audit.judged


def test_a_run_that_stopped_is_invalid_if_there_is_a_duplicate():
    assert COPY.audit(Reading(both([*FIRST, FIRST[0]]), error="it ended")).verdict is Verdict.INVALID


def test_what_a_foreign_job_cannot_show_is_not_judged():
    for workload in (COPY, TRANSFER, COUNT):
        assert Anomaly.ABORTED_READ not in workload.audit(Reading([], [], {0: True})).judged
    assert Anomaly.TORN_BATCH in TRANSFER.audit(Reading([], [])).judged
    assert Anomaly.TORN_BATCH not in COPY.audit(Reading([], [])).judged


def test_a_count_that_nobody_expects_is_no_result_that_a_run_waits_for():
    assert COUNT.result_of(Output(0, 0, result_value(min(COUNT._expected)[0], "10.9.9.9", 1))) is None
    assert {COUNT.result_of(output) for output in outputs(counted())} == COUNT.due.keys()


def test_records_of_a_count_come_as_late_as_a_window_waits():
    latest, late = 0, []
    for time_ms, _ in COUNT.log:
        latest = max(latest, time_ms)
        late.append(latest - time_ms)
    assert 0.9 * LATENESS_MS < max(late) <= LATENESS_MS


def test_every_result_becomes_due_by_an_input_and_the_last_ones_by_the_closing_records():
    for workload in (COPY, TRANSFER, COUNT):
        sent = len(workload.inputs)
        assert set(workload.due.values()) <= set(range(sent + len(workload.closing)))
        assert {record.partition for record in workload.closing} == set(range(workload.partitions))
        assert workload.last <= {name for name, index in workload.due.items() if index >= sent}


def test_the_same_seed_makes_the_same_records():
    for name in ("copy", "transfer", "count"):
        first, again, other = (workload_called(name, 2_000, None, seed).inputs for seed in (1, 1, 2))
        assert first == again != other


def test_a_workload_that_is_not_there_is_refused():
    with pytest.raises(ValueError, match="there are copy, count, transfer"):
        workload_called("sum", None, None, 1)
    with pytest.raises(ValueError, match="has 1 partition"):
        workload_called("count", None, 2, 1)
