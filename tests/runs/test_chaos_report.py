"""The numbers of a chaos run, from handwritten moments."""

from __future__ import annotations

from pathlib import Path

import pytest

from labs.evidence.auditor.audit import Result, audit
from labs.faults.chaos_injectors import ChaosPlan, Strike
from labs.runs.chaos import ON_ITS_WAY_TO_A_SPARE, ChaosReport, Sample, recoveries
from labs.runs.chaos_plot import plot_chaos
from tests.plots import legend

ONCE = (Result(0, "a", 1),)


def report(observed=ONCE, strikes=(), **plan):
    samples = [Sample(float(s), 100 * s, 80 * s, s) for s in range(5)]
    verdict = audit({(0, "a"): 1}, observed)
    seconds = recoveries([10.0], [5.0, 19.5])
    return ChaosReport(ChaosPlan(**plan), verdict, strikes, samples, seconds, 400, Path("evidence"))


def test_recovery_is_the_time_to_the_first_new_result():
    assert recoveries([10.0, 30.0], [9.0, 18.0, 19.0, 37.5]) == [8.0, 7.5]


def test_result_that_was_on_its_way_when_the_driver_was_killed_is_no_recovery():
    assert recoveries([10.0], [10.2, 18.0]) == [8.0]


def test_hot_spare_is_so_quick_that_less_counts_as_on_its_way():
    assert recoveries([10.0], [10.2, 11.0, 18.0], ON_ITS_WAY_TO_A_SPARE) == [1.0]


def test_of_two_kills_before_a_result_the_last_counts():
    assert recoveries([10.0, 14.0], [21.0]) == [7.0]


def test_kill_without_a_later_result_is_not_measured():
    assert recoveries([10.0], [9.0]) == []


def test_report_counts_faults_by_kind_and_not_what_followed_from_them():
    strikes = [
        Strike("driver-kill", 1.0, ended=1.0),
        Strike("driver-point", 2.0, ended=2.0),
        Strike("broker-kill", 3.0, "node 0", 5.0),
        Strike("driver-ended", 4.0, "lost its broker", 4.0, injected=False),
    ]
    numbers = report(strikes=strikes).as_dict()
    assert numbers["driver_kills"] == 2
    assert {kind: n for kind, n in numbers["faults"].items() if n} == {
        "driver-kill": 1,
        "driver-point": 1,
        "broker-kill": 1,
    }
    assert numbers["recovery"] == {"kills": 1, "p50": 9.5, "max": 9.5}
    assert (numbers["verdict"], numbers["lost"], numbers["duplicated"]) == ("valid", 0, 0)


def test_report_of_a_doubled_result_is_not_valid():
    doubled = report([Result(0, "a", 1)] * 2)
    assert not doubled.valid
    assert doubled.as_dict()["duplicated"] == 1


def test_lag_is_never_negative():
    assert Sample(1.0, sent=10, processed=12, visible=0).lag == 0


def test_plot_has_a_row_for_each_kind_that_struck():
    ax = plot_chaos(report(strikes=[Strike("broker-kill", 1.0, "node 0", 3.0), Strike("network-cut", 2.0, ended=2.0)]))
    assert [label.get_text() for label in ax.get_yticklabels()] == ["broker-kill", "network-cut"]
    assert ax.get_title(loc="left").startswith("valid: 2 faults")


def test_plot_shows_what_was_sent_and_says_what_its_dotted_line_is():
    _, records, visible = plot_chaos(report()).figure.axes
    assert legend(records) == ["behind", "sent", "in complete batches"]
    assert [text.get_text() for text in visible.texts] == ["the plan's 180 s are over"]
    visible = plot_chaos(report(least={"driver": 2})).figure.axes[-1]
    assert visible.texts[0].get_text().endswith(" s are over: now only faults that it still requires")


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"kinds": ("meteor",)}, "no fault is called 'meteor'"),
        ({"kinds": ("executor-kill",)}, "needs executors"),
        ({"minutes": 0}, "minutes is 0"),
        ({"points": ("nowhere",)}, "no fault point is called 'nowhere'"),
        ({"points": (), "kinds": ("driver-point",)}, "points is empty"),
        ({"sink": "kitchen"}, "no sink is called 'kitchen'"),
        ({"nodes": 0}, "nodes is 0"),
        ({"least": {"cat": 1}}, "none of the faults kills a 'cat'"),
        ({"least": {"executor": 1}}, "none of the faults kills a 'executor'"),
    ],
)
def test_impossible_plan_is_refused(wrong, message):
    with pytest.raises(ValueError, match=message):
        ChaosPlan(**wrong)


def test_chaos_lasts_until_enough_were_killed():
    plan = ChaosPlan(minutes=1, least={"driver": 2})
    kills = [Strike("driver-kill", 1.0, ended=1.0), Strike("broker-kill", 2.0, ended=3.0)]
    assert not plan.is_done(90.0, kills)
    assert plan.is_done(90.0, [*kills, Strike("driver-point", 4.0, ended=4.0)])
    assert not plan.is_done(59.0, kills * 2)


def test_after_its_minutes_only_what_is_owed_goes_on():
    plan = ChaosPlan(minutes=1, least={"driver": 2, "broker": 1})
    strikes = [Strike("driver-kill", 3.0, ended=3.0), Strike("broker-kill", 5.0, ended=9.0)]
    assert plan.is_done(61.0, strikes, ("broker-kill", "broker-pause"))
    assert plan.is_done(61.0, strikes, ("network-cut",))
    assert not plan.is_done(61.0, strikes, ("driver-kill", "driver-pause"))
    assert not plan.is_done(59.0, strikes, ("network-cut",))
