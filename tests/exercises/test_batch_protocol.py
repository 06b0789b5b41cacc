"""Exercise 8: which steps are a batch, and that Kafka does what the model says of right ones and wrong ones."""

from __future__ import annotations

import dataclasses
import runpy
from pathlib import Path

import pytest

from labs.exercises.checker.batch_judges import WALKS
from labs.exercises.checker.batch_steps import (
    NoBatch,
    counterexample,
    every_interleaving,
    explore_batch,
    stage_of,
    undisturbed,
)
from labs.exercises.checker.check import check
from labs.exercises.checker.finding import Grade
from labs.schedules.conformance import played, walk
from labs.schedules.replay.bench import replay_bench
from labs.schedules.replay.player import Player
from labs.schedules.replay.replay import replay_on_kafka

RIGHT = ["plan", "fence", "read marker", "rows", "marker", "commit", "note"]
WRONG = Path(__file__).parent / "wrong"
BROKEN_BY_INTERLEAVING = (
    "does_not_read_the_marker",
    "fences_once",
    "has_no_marker",
    "marks_in_a_later_transaction",
    "marks_in_an_earlier_transaction",
    "notes_before_it_commits",
    "reads_the_marker_first",
)


def steps_of(name: str) -> list[str]:
    return runpy.run_path(str(WRONG / f"batch_protocol__{name}.py"))["batch"]()


def without(*steps: str) -> list[str]:
    return [step for step in RIGHT if step not in steps]


@pytest.fixture(scope="module")
def kafka():
    with replay_bench() as started:
        yield started


@pytest.mark.parametrize(
    ("steps", "why"),
    [
        (None, "a list of steps, and not None"),
        ("plan", "a list of steps, and not 'plan'"),
        ([*RIGHT, 7], "there is no step 7"),
        ([*RIGHT, "look"], "there is no step 'look'; there are: plan, fence"),
        ([], "'rows' is missing"),
        (without("rows"), "'rows' is missing"),
        (without("note"), "'note' is missing"),
        ([*RIGHT, "rows"], "'rows' is there 2 times"),
        ([*RIGHT, "note"], "'note' is there 2 times"),
        (["fence", "plan", *RIGHT[2:]], "'plan' comes first, and here it is 'fence'"),
        (without("plan"), "'plan' comes first, and here it is 'fence'"),
        (without("fence"), "'rows' has no 'fence' before it"),
        (["plan", "rows", *without("plan", "rows")], "'rows' has no 'fence' before it"),
        (["plan", "commit", *RIGHT[1:]], "'commit' has no 'fence' before it"),
        (without("commit"), "'fence' has no 'commit' after it"),
        (["plan", "rows", "marker", "note"], "'marker' has no 'commit' after it"),
        (["plan", "fence", "rows", "commit", "marker", "note"], "'marker' has no 'commit' after it"),
        (["plan", "fence once", *RIGHT[1:]], "'fence' and 'fence once' are both there"),
        (without("marker"), "'read marker' finds nothing"),
        ([*RIGHT[:-1], "commit", "note"], "'commit' commits nothing"),
    ],
)
def test_what_is_no_batch_is_refused_and_the_step_is_named(steps, why):
    with pytest.raises(NoBatch) as refused:
        stage_of(steps)
    assert why in str(refused.value)
    assert "\n" not in str(refused.value)


def test_one_driver_alone_publishes_everything_in_each_of_the_stages():
    for steps in (RIGHT, ["plan", "rows", "note"], *map(steps_of, BROKEN_BY_INTERLEAVING)):
        schedule, state = undisturbed(stage_of(steps))
        assert stage_of(steps).visible(state) == (0, 1, 2, 3), schedule


@pytest.mark.bench
def test_an_epoch_kept_for_all_batches_is_torn_by_a_commit_that_comes_late():
    found = explore_batch(steps_of("fences_once"))
    assert (found.anomaly, len(found.schedule.events)) == ("torn", 13)
    assert found.schedule.events[-1].request == "commit"


@pytest.mark.long
def test_picture_is_of_the_shortest_schedule():
    drawing = counterexample(["plan", "rows", "note"])
    assert drawing.startswith("<svg")
    assert "your batch: doubled" in drawing
    assert "6. driver 2 sends record 0 of batch 0: ok" in drawing.words


@pytest.mark.long
@pytest.mark.timeout(300)
@pytest.mark.parametrize("name", BROKEN_BY_INTERLEAVING)
def test_what_the_model_finds_in_a_wrong_batch_happens_on_kafka(name, kafka):
    stage, found = every_interleaving(stage_of(steps_of(name)))
    assert replay_on_kafka(found.schedule, stage, kafka).differences == []


@pytest.mark.long
@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    "steps",
    [
        ["plan", "fence", "read marker", "marker", "rows", "commit", "note"],
        ["plan", "fence", "rows", "read marker", "marker", "commit", "note"],
    ],
)
def test_other_orders_that_are_right_do_on_kafka_what_the_model_says(steps, kafka):
    stage = dataclasses.replace(stage_of(steps), rows=1, drivers=3, luck=("deliver again", "lose"))
    for seed in WALKS:
        with Player(stage, kafka) as player:
            assert played(walk(seed, stage), player) == []


def test_walks_of_the_check_meet_a_second_driver_and_an_unkind_network():
    stage = dataclasses.replace(stage_of(RIGHT), rows=1, drivers=3, luck=("deliver again", "lose"))
    events = [event for seed in WALKS for event in walk(seed, stage).schedule.events]
    assert {"start", "deliver", "deliver again", "lose"} <= {event.action for event in events}
    assert {"fenced", "held"} <= {event.answer for event in events}


@pytest.mark.long
@pytest.mark.timeout(300)
def test_report_has_the_schedule_in_words_and_what_the_auditor_said_of_kafka(tmp_path):
    mine = tmp_path / "mine.py"
    mine.write_text(f"def batch():\n    return {steps_of('has_no_marker')}\n")
    report = check("batch_protocol", mine)
    *_, model, kafka = report.findings
    assert (model.symptom, model.doubled, len(model.timeline)) == ("doubled", 2, 12)
    assert (kafka.grade, kafka.symptom, kafka.doubled) == (Grade.FAILED, "doubled", 2), report
    assert "the same happened in 12 steps" in kafka.detail
    assert "DUPLICATE 2" in kafka.detail
    assert kafka.hint == model.hint


@pytest.mark.long
@pytest.mark.parametrize(
    ("returned", "told", "symptom", "hint"),
    [
        ("None", "not None", "unreadable", "Return a list of texts"),
        ("{'plan': 1}", "not {'plan': 1}", "unreadable", "Return a list of texts"),
        ("['plan', 'Rows', 'note']", "no step 'Rows'", "unreadable", "exactly as in the task"),
        ("['plan', 'note']", "'rows' is missing", "wrong", "Which steps belong together?"),
    ],
)
def test_what_is_no_batch_is_refused_by_the_check_with_a_hint_that_fits(returned, told, symptom, hint, tmp_path):
    mine = tmp_path / "mine.py"
    mine.write_text(f"def batch():\n    return {returned}\n")
    problem = check("batch_protocol", mine).first_problem
    assert problem is not None
    assert (problem.symptom, problem.scenario) == (symptom, "the steps")
    assert told in problem.detail
    assert hint in problem.hint
