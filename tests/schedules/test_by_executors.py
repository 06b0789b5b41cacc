"""The model of the sink by executors: that it tries what executors can do, how far, and what it holds on to."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from exactly_once_kafka.protocol import exactly_once
from labs.pipeline.broken_protocols import rows_not_counted, silence_not_aborted
from labs.schedules.model import executors
from labs.schedules.model.checker import explore
from labs.schedules.model.executors import ByExecutors
from labs.schedules.model.stages import MODELS
from labs.schedules.model.state import NEVER, Driver, Marker, Request, State
from labs.schedules.schedule import Schedule
from labs.schedules.sequence_diagram import draw
from tests.schedules.changed import changed
from tests.schedules.test_model import explored, kafka_stage, reachable

pytestmark = pytest.mark.xdist_group("model")
PICTURES = Path(__file__).parents[2] / "docs" / "pictures"
STATES = {  # how many at most, of each stage
    "the sink by executors": 170_000,
    "by executors, uncounted": 2_000,
    "by executors, tasks retried": 60_000,
    "by executors, partition shared": 15_000,
    "by executors, epoch kept": 50_000,
    "by executors, silence not aborted": 40_000,
    "by executors, abort keeps the epoch": 45_000,
}
BY_EXECUTORS = MODELS["the sink by executors"]
assert isinstance(BY_EXECUTORS, ByExecutors)
SMALL = dataclasses.replace(BY_EXECUTORS, batches=1, rows=2)
DONE = State(log=((0, 0, "committed"),), planned=(1,), marker=Marker(0, 1), epoch=1, committed=0)


@pytest.mark.long
@pytest.mark.parametrize("name", STATES)
def test_states_are_few_enough(name):
    assert explored(name).states <= STATES[name]


@pytest.mark.long
def test_every_action_and_every_fault_is_taken():
    requests = ("fence", "read marker", "marker", "commit", "abort")
    expected = {("driver", action, "") for action in ("plan", "note", "hand out", "count", *requests)}
    expected |= {("task", "row", ""), ("task", "give up", ""), ("broker", "time out", ""), ("supervisor", "start", "")}
    expected |= {("supervisor", again, "") for again in ("run again", "run the stage again")}
    expected |= {("network", "deliver", request) for request in (*requests, "row")}
    expected |= {
        ("network", fate, request)
        for fate in ("deliver again", "lose the answer")
        for request in (*requests[:-1], "row")  # for an answer to an abort waits only who has had bad luck
    }
    assert explored("the sink by executors").taken.keys() == expected


@pytest.mark.long
def test_task_that_is_run_again_writes_only_where_that_is_allowed():
    assert not any(actor.endswith("again") for actor, *_ in explored("the sink by executors").taken)
    assert any(actor.endswith("again") for actor, *_ in explored("by executors, tasks retried").taken)


@pytest.mark.bench
def test_next_batch_is_written_under_the_epoch_that_the_commit_gave():
    stage = dataclasses.replace(kafka_stage("the sink by executors"), faults=(), drivers=1)
    found = explore(stage)
    assert found.taken["driver", "fence", ""] == 1
    assert {task.epoch for state in reachable(stage) for task in state.tasks} == {0, 1}


def test_late_row_of_an_older_epoch_is_turned_away():
    state = dataclasses.replace(SMALL, faults=()).start()._replace(epoch=1, planned=(2,), drivers=(Driver(epoch=0),))
    row = Request(0, "row", 0, 0, epoch=0, task="task 1")
    [(event, after)] = [move for move in SMALL.moves(state._replace(net=frozenset({row}))) if move[0].request == "row"]
    assert (event.answer, after.log) == ("fenced", ())


@pytest.mark.parametrize(
    ("state", "answer"),
    [
        (DONE, "epoch 1"),
        (DONE._replace(epoch=2), "fenced"),
        (DONE._replace(pending=Marker(1, 2)), "fenced"),
        (DONE._replace(committed=-1), "fenced"),
    ],
)
def test_commit_that_is_asked_for_again_is_answered_until_the_next_transaction(state, answer):
    again = Request(0, "commit", 0, epoch=0)
    driver = Driver(history=(None, None, None, None, True, None), epoch=0, waiting=True)
    state = state._replace(net=frozenset({again}), drivers=(driver,))
    event, after = next(SMALL.moves(state))
    assert (event.answer, after.log, after.marker) == (answer, state.log, state.marker)


SILENCE = dataclasses.replace(SMALL, drivers=1, faults=("give up",))


@pytest.mark.bench
def test_batch_for_which_kafka_was_silent_is_written_again_under_the_epoch_that_the_abort_gave():
    states = list(reachable(SILENCE))
    assert {task.epoch for state in states for task in state.tasks if task.repeats} == {1}
    done = [state for state in states if state.noted == 0]
    assert {state.epoch for state in done} == {1, 2}  # the epoch after the commit: without silence, and with it
    assert all(sorted(SMALL.visible(state)) == [0, 1] for state in done)


@pytest.mark.bench
def test_no_row_is_written_again_before_the_abort_is_answered():
    for state in reachable(SILENCE):
        for event, after in SILENCE.moves(state):
            if event.action == "hand out" and after.drivers[0].again:
                assert state.epoch == 1
                assert not any(status == "open" for *_, status in state.log)


ABORTED = State(planned=(2,), epoch=1, aborted=0)


@pytest.mark.parametrize(
    ("state", "answer"),
    [(ABORTED, "epoch 1"), (ABORTED._replace(aborted=NEVER), "fenced"), (ABORTED._replace(epoch=2), "fenced")],
)
def test_abort_that_is_asked_for_again_or_that_kafka_made_itself_is_answered_with_the_epoch(state, answer):
    driver = Driver(history=(None, None, None, None, False), epoch=0, waiting=True)
    again = Request(0, "abort", 0, epoch=0)
    event, after = next(SMALL.moves(state._replace(net=frozenset({again}), drivers=(driver,))))
    assert event.answer == answer
    assert after.drivers[0].alive == (answer == "epoch 1")


@pytest.mark.bench
@pytest.mark.parametrize("more", ["lose the answer", "deliver again", "time out", "run again"])
def test_nothing_is_found_where_more_goes_wrong_while_a_silent_batch_is_written_again(more):
    found = explore(dataclasses.replace(SILENCE, faults=("give up", more), strikes=2))
    assert (found.anomaly, found.complete) == (None, True)
    if more == "lose the answer":
        assert found.taken["network", more, "abort"]


def test_record_that_is_missing_from_a_batch_marked_as_done_is_lost():
    assert SMALL.anomaly(DONE) is None
    assert SMALL.anomaly(DONE._replace(planned=(2,), marker=Marker(0, 2))) == "lost"


@pytest.mark.bench
@pytest.mark.parametrize(
    ("protocol", "anomaly"),
    [
        (changed("marker"), "doubled"),
        (changed("read marker"), "doubled"),
        (changed("fence", "read marker"), "doubled"),
        (changed("rows", "marker"), None),
    ],
    ids=["no marker", "marker not read again", "read before fencing", "marker before the rows"],
)
def test_change_of_the_protocol_is_caught_by_crashes_and_sleeps_alone(protocol, anomaly):
    assert explore(ByExecutors("", protocol, faults=())).anomaly == anomaly


@pytest.mark.bench
def test_rows_that_are_not_counted_or_not_aborted_are_caught():
    assert explore(ByExecutors("", changed("abort"), faults=("give up",))).anomaly == "doubled"
    assert explore(ByExecutors("", silence_not_aborted, faults=("give up",))).anomaly == "doubled"
    assert explore(ByExecutors("", exactly_once, faults=("give up",), batches=1)).anomaly is None


@pytest.mark.bench
@pytest.mark.parametrize("name", [name for name in STATES if name.startswith("by")])
def test_counterexample_is_kept_and_drawn(name):
    schedule = explored(name).schedule
    assert Schedule.from_json(schedule.to_json()) == schedule
    assert "task 2" in draw(schedule)


@pytest.mark.bench
@pytest.mark.parametrize(
    "variant",
    [
        {"faults": ("deliver again",)},
        {"faults": ("run again",), "retries": True},
        {"faults": ("give up",), "protocol": rows_not_counted},
        {"faults": ("give up",), "drivers": 1},
        {"faults": ("give up",), "drivers": 1, "epoch_by_abort": False},
        {"faults": ("time out", "give up"), "drivers": 1, "strikes": 2},
        {"faults": (), "apart": False},
        {"faults": ("deliver again",), "epoch_by_commit": False, "batches": 2, "rows": 1},
    ],
)
def test_what_is_forgotten_makes_no_difference(variant, monkeypatch):
    """What Kafka and the checkpoint can come to hold is the same, whether anything is forgotten on the way or not."""
    stage = dataclasses.replace(SMALL, **variant)
    forgetting = kept_by(stage)
    monkeypatch.setattr(executors, "without_what_makes_no_difference", lambda before, state: state)
    assert kept_by(stage) == forgetting


def kept_by(stage):
    return {(tuple(sorted(stage.visible(state))), state.marker, state.noted) for state in reachable(stage)}


@pytest.mark.bench
def test_rerun_of_a_stage_is_kept_and_drawn():
    stage = dataclasses.replace(kafka_stage("by executors, tasks retried"), faults=("run the stage again",))
    schedule = explore(stage).schedule
    assert schedule.anomaly == "doubled"
    assert Schedule.from_json(schedule.to_json()) == schedule
    assert "its tasks run once more" in draw(schedule)


@pytest.mark.bench
@pytest.mark.parametrize("name", ["tasks retried", "epoch kept"])
def test_picture_in_the_docs_is_what_the_model_finds(name):
    picture = (PICTURES / f"executors-{name.replace(' ', '-')}.svg").read_text()
    assert draw(explored(f"by executors, {name}").schedule) == picture
