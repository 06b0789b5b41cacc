"""The plan of the strikes, and what a job and its control say together: nothing is started."""

from __future__ import annotations

import json
import re
from collections import Counter
from dataclasses import replace
from xml.etree import ElementTree

import pytest

from labs.equipment.child_process import ending_of
from labs.evidence.auditor.anomalies import Verdict
from labs.judge import judge
from labs.judging.engine_session import EngineStopped
from labs.judging.job_session import Endings, JobRun
from labs.judging.judged_job import last_message
from labs.judging.judgement import CONTROL_LOST, NO_CONTROL, PROVES_NOTHING, Judgement, html, junit
from labs.judging.strikes import ANSWER, COMMIT, KINDS, WRITE, Strike, check_rate, draw, halves, slices
from labs.judging.workloads import Copy, Output, Reading, workload_called

WORKLOAD = Copy(40, 1, seed=1)
CLEAN = [Output(0, n, record.value) for n, record in enumerate([*WORKLOAD.inputs, *WORKLOAD.closing])]


def draw_of(workload, kills=4, faults=("kill",), seed=7, proxied=True):
    return draw(workload.due, workload.inputs, kills, faults, seed, proxied)


@pytest.mark.parametrize("name", ["copy", "count", "transfer"])
def test_each_strike_has_a_moment_in_the_second_half_of_its_slice(name):
    workload = workload_called(name, None, None, 3, strikes=4)
    for number, aim in enumerate(aims := draw_of(workload)):
        part = len(workload.inputs) / (len(aims) + 1)
        assert part * (number + 0.5) - 1 <= aim.moment < part * (number + 1) + 1
        assert aim.moment in workload.due.values()


@pytest.mark.parametrize("name", ["copy", "count", "transfer"])
@pytest.mark.parametrize("strikes", [1, 3, 8])
def test_each_half_of_a_slice_of_the_default_input_makes_a_result_due(name, strikes):
    for seed in (1, 7):
        workload = workload_called(name, None, None, seed, strikes)
        draw_of(workload, kills=strikes, seed=seed)  # raises ValueError if one does not
        moments, sent = set(workload.due.values()), 0
        for half in [half for part in slices(workload.inputs, strikes)[:-1] for half in halves(part)]:
            assert not moments.isdisjoint(range(sent, sent + len(half)))
            sent += len(half)


def test_an_input_whose_first_half_slice_makes_nothing_due_is_refused():
    workload = workload_called("count", 4_000, None, 7)  # nothing is due before record 2,000
    with pytest.raises(ValueError, match="too few for 1 strikes"):
        draw_of(workload, kills=1)


def test_at_a_chosen_rate_each_half_slice_lasts_a_second_or_more():
    check_rate(Copy(1_000, 1, seed=1).inputs, 4, rate=100)
    with pytest.raises(ValueError, match="too few for 4 strikes at 101 a second: give --records 1010 or more"):
        check_rate(Copy(1_000, 1, seed=1).inputs, 4, rate=101)
    check_rate(Copy(1_010, 1, seed=1).inputs, 4, rate=101)
    check_rate(Copy(10, 1, seed=1).inputs, 0, rate=1e9)


def test_without_a_proxy_every_other_kill_comes_at_once():
    delays = [aim.delay for aim in draw_of(WORKLOAD, proxied=False)]
    assert [delay > 0 for delay in delays] == [False, True, False, True]


def test_the_same_seed_draws_the_same_strikes_and_another_one_others():
    assert draw_of(WORKLOAD) == draw_of(WORKLOAD) != draw_of(WORKLOAD, seed=8)


def test_kills_have_four_moments_in_turn_and_without_a_proxy_only_the_first_sight():
    assert [aim.before for aim in draw_of(WORKLOAD, kills=5)] == [ANSWER, WRITE, COMMIT, "", ANSWER]
    assert not any(aim.before for aim in draw_of(WORKLOAD, proxied=False))


def test_without_a_proxy_a_job_is_also_terminated_and_paused():
    aims = draw_of(WORKLOAD, kills=1, faults=("kill", "terminate", "pause"), proxied=False)
    assert sorted(aim.kind for aim in aims) == ["kill", "pause", "terminate"]


def test_each_other_fault_comes_once():
    aims = draw_of(WORKLOAD, kills=2, faults=list(KINDS))
    assert Counter(aim.kind for aim in aims) == {**dict.fromkeys(KINDS, 1), "kill": 2}
    assert draw_of(WORKLOAD, kills=2, faults=[]) == []


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"kills": -1}, "expected 0 or more"),
        ({"kills": 60}, "too few for 60 strikes"),
        ({"faults": ("kill", "cut"), "proxied": False}, "these need the lab's own Kafka"),
    ],
)
def test_a_plan_that_cannot_be_carried_out_is_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        draw_of(WORKLOAD, **arguments)


def test_a_third_ending_in_a_row_without_a_new_result_stops_the_run():
    endings = Endings("the job")
    for results in (0, 0, 5, 5, 5):  # the third one brought results
        endings.note("ended by itself with exit code 0", "bye", results)
    with pytest.raises(EngineStopped, match=r"the job ended by itself with exit code 0, 3 times .* result: bye"):
        endings.note("ended by itself with exit code 0", "bye", 5)


def test_each_way_to_end_is_one_remark_however_often():
    endings = Endings("the job")
    for number in range(1, 101):
        endings.note(ending_of(1), f"it printed: {number}: fenced", results=number)
    endings.note(ending_of(-11), "it printed nothing", results=200)
    assert endings.remarks() == [
        "it ended by itself with exit code 1 and was started again, 100 times; the first time: it printed: 1: fenced",
        "it was ended by SIGSEGV and was started again: it printed nothing",
    ]
    assert ending_of(-40) == "was ended by signal 40"


TRACES = {
    "node": (
        "node:internal/modules/run_main:123\n    triggerUncaughtException(\n    ^\n\n"
        "ResponseError [AggregateError]: Received response with error while executing API EndTxn(v4)\n"
        "    at parseResponse (file:///kafka/end-txn-v4.js:30:15)\n  [errors]: [\n    ProtocolError: no\n  ]\n}\n\n"
        "Node.js v20.20.2\n",
        "ProtocolError: no",
    ),
    "java": (
        'Exception in thread "main" java.lang.IllegalStateException: stopped\n\tat Copy.main(Copy.java:9)\n'
        "Caused by: org.apache.kafka.common.errors.ProducerFencedException: fenced\n\t... 1 more\n",
        "Caused by: org.apache.kafka.common.errors.ProducerFencedException: fenced",
    ),
    "go": (
        "panic: no broker\n\ngoroutine 1 [running]:\nmain.main()\n\t/copy/main.go:12 +0x1d\nexit status 2\n",
        "panic: no broker",
    ),
    "python": (
        'Traceback (most recent call last):\n  File "copy.py", line 1, in <module>\nKeyError: 7\n',
        "KeyError: 7",
    ),
    "an error that was handled": ("KeyError: handled\ngood bye\n", "good bye"),
    "no error": ("}\n", "}"),
}


@pytest.mark.parametrize("kind", TRACES)
def test_the_last_line_of_a_stack_trace_is_its_error(kind):
    output, line = TRACES[kind]
    assert last_message(output) == f"it printed: {line}"


def test_a_job_that_prints_nothing_is_said_to():
    assert last_message(" \n") == "it printed nothing"


def run(outputs, error=None, strikes=1):
    audit = WORKLOAD.audit(Reading(outputs, error=error))
    struck = [Strike("kill", 3.0, "killed after a write")] * strikes
    return JobRun(["./copy", "<b>"], struck, 9.0, audit, ["it\x1b printed"], [(0.0, 0), (8.0, 41)])


VALID, DOUBLED, STOPPED = run(CLEAN), run(CLEAN + CLEAN[:1]), run(CLEAN[:5], "it wrote nothing new")


@pytest.mark.parametrize(
    ("job", "control", "verdict", "exit_code"),
    [
        (VALID, DOUBLED, Verdict.VALID, 0),
        (VALID, None, Verdict.VALID, 0),
        (VALID, VALID, Verdict.UNKNOWN, 2),
        (VALID, STOPPED, Verdict.UNKNOWN, 2),
        (DOUBLED, DOUBLED, Verdict.INVALID, 1),
        (DOUBLED, VALID, Verdict.INVALID, 1),
        (STOPPED, DOUBLED, Verdict.UNKNOWN, 2),
    ],
)
def test_a_job_is_valid_only_if_its_control_is_doubled(job, control, verdict, exit_code):
    found = Judgement("copy", 7, ["kill"], job, control)
    assert (found.verdict, found.exit_code) == (verdict, exit_code)
    assert (PROVES_NOTHING in found.reason) == (job is VALID and control not in (None, DOUBLED))
    assert (NO_CONTROL in found.reason) == (control is None)
    assert json.loads(json.dumps(found.as_dict()))["verdict"] == str(verdict)


def test_strikes_that_all_missed_are_said_to_have_tried_nothing():
    struck = [Strike("late-commit", 3.0, "it ended no transaction", missed=True)]
    missed = Judgement("copy", 7, ["late-commit"], replace(VALID, strikes=struck))
    assert "nothing was tried" in missed.reason
    hit = replace(VALID, strikes=[*struck, Strike("kill", 4.0, "killed")])
    assert "nothing was tried" not in Judgement("copy", 7, ["kill"], hit).reason


def test_a_control_that_loses_instead_of_doubling_is_told_why():
    found = Judgement("copy", 7, ["kill"], VALID, run(CLEAN[1:]))
    assert found.verdict is Verdict.UNKNOWN
    assert CONTROL_LOST in found.reason
    assert "control, which must be doubled: ./copy" in str(found)


def test_a_judgement_is_neither_true_nor_false():
    with pytest.raises(TypeError, match=r"ask judgement\.valid"):
        bool(Judgement("copy", 7, ["kill"], DOUBLED))


@pytest.mark.parametrize(
    ("job", "control", "numbers"),
    [
        (VALID, DOUBLED, ("2", "0", "0")),
        (VALID, VALID, ("2", "0", "2")),
        (DOUBLED, None, ("1", "1", "0")),
        (STOPPED, None, ("1", "0", "1")),
    ],
)
def test_junit_has_a_failure_for_invalid_and_an_error_for_unknown(job, control, numbers):
    suite = ElementTree.fromstring(junit(Judgement("copy", 7, ["kill"], job, control)))
    assert (suite.get("tests"), suite.get("failures"), suite.get("errors")) == numbers


def test_junit_says_beside_valid_what_the_verdict_is_worth():
    assert NO_CONTROL in junit(Judgement("copy", 7, ["kill"], VALID))
    assert PROVES_NOTHING not in junit(Judgement("copy", 7, ["kill"], VALID, DOUBLED))


def test_the_page_needs_no_other_file_and_escapes_what_a_job_says():
    page = html(Judgement("copy", 7, ["kill"], DOUBLED, VALID))
    assert "<b>" not in page
    assert "\x1b" not in page
    assert not any(word in page for word in ("src=", "href=", "url(", "<script"))
    assert "The job is invalid" in page


def test_the_page_names_what_each_of_many_records_met_and_the_terminal_the_first_three():
    found = Judgement("copy", 7, ["kill"], run(CLEAN[:5] + CLEAN[25:]), DOUBLED)
    lost = [f"record {number} of source partition 0 is not there" for number in range(5, 25)]
    page, told = html(found), str(found)
    assert "<summary>17 more</summary>" in page
    assert re.findall(r"record \d+ of source partition 0 is not there", page) == lost
    assert sum(each in told for each in lost) == 3


@pytest.mark.parametrize("name", ["records", "partitions"])
def test_no_records_and_no_partitions_are_refused_and_not_taken_for_the_default(name):
    with pytest.raises(ValueError, match=f"{name} is 0; expected 1 or more"):
        judge(["true"], **{name: 0})  # type: ignore[arg-type]  # either is an int
