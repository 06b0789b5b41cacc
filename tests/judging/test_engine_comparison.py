"""What a comparison of engines calls expected, and what it reports: judged from handwritten runs."""

from __future__ import annotations

import pytest

from labs.benchmarks.peers import Pair
from labs.commands.engines import tables
from labs.evidence.auditor.audit import Result, audit
from labs.judging.engine_comparison import Found, machine
from labs.judging.engine_run import OF_LOSS, EngineRun, OutageRun, SpeedRun, Step, percentile

EXPECTED = {(0, "192.0.2.1"): 3, (0, "192.0.2.2"): 1}
ONCE = [Result(0, "192.0.2.1", 3), Result(0, "192.0.2.2", 1)]
CLEAN, DOUBLED, LOST = audit(EXPECTED, ONCE), audit(EXPECTED, ONCE * 2), audit(EXPECTED, ONCE[:1])


def killed(exactly_once, audit, kills=(3.0,)):
    return Found(7, EngineRun("spark", exactly_once, kills, (9.0,), 8.0, 60.0, audit))


def away(audit, timeout_seconds, back=65.8):
    steps = (Step(2.0, "killed"), Step(back, "an end is answered: done"), Step(back + 1, "an end is answered: done"))
    return Found(7, OutageRun("flink", True, timeout_seconds, 16.0, steps, None, audit))


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        (killed(True, CLEAN), True),
        (killed(True, DOUBLED), False),
        (killed(True, LOST), False),
        (killed(False, DOUBLED), True),
        (killed(False, CLEAN), False),  # the kills have not hit: they prove nothing
        (killed(False, CLEAN, kills=()), True),
        (away(LOST, 10.0), True),  # shorter than the outage: whether it loses is the question
        (away(DOUBLED, 10.0), False),
        (away(LOST, 60.0), True),  # longer than the outage, and shorter than it and the restart together
        (away(LOST, 240.0), False),
        (away(CLEAN, 240.0), True),
    ],
)
def test_a_control_has_to_be_doubled_and_a_timeout_longer_than_the_outage_to_keep_all(found, expected):
    assert found.as_expected == expected


def test_each_trial_has_a_table_of_its_own():
    speed = SpeedRun("quix", True, 1000, 2.0, 4.0, (0.1, 0.2, 0.9), 120.4, 0.456, CLEAN)
    runs = [each.as_dict() for each in (killed(True, CLEAN), away(LOST, 10.0), Found(7, speed))]
    assert (runs[0]["anomalies"], runs[1]["anomalies"]) == ({}, {"LOST": 1})
    assert [(table.title, table.row_count) for table in tables(runs)] == [("kills", 1), ("outage", 1), ("speed", 1)]
    assert (runs[1]["lost"], runs[1]["steps"]) == (
        1,
        [[2.0, "killed"], *([second, "an end is answered: done"] for second in (65.8, 66.8))],
    )
    assert (runs[2]["latency_p50"], runs[2]["latency_p99"], runs[2]["memory_mb"]) == (0.2, 0.9, 120)
    assert runs[2]["cores"] == 0.46


def test_what_a_record_costs_once_warm_is_told_without_the_start():
    few, many = (
        SpeedRun("quix", True, backlog, 2.0, drained, (0.1, 0.2), 120.4, 0.456, CLEAN)
        for backlog, drained in ((1_000, 12.0), (5_000, 14.0))
    )
    assert Pair(few, many).records_per_second == 2_000


def test_a_percentile_is_a_value_that_was_seen():
    assert [percentile(range(1, 101), share) for share in (0.5, 0.99)] == [51, 100]
    assert percentile([], 0.5) is None


def test_a_log_that_speaks_of_a_loss_is_heard_and_an_option_is_not():
    assert OF_LOSS.search("WARN ... In both cases this most likely signals data loss, please consult")
    assert not OF_LOSS.search("INFO failOnDataLoss = false")


def test_a_machine_has_no_name():
    assert {"cores", "memory_gib", "versions"} < machine().keys()
