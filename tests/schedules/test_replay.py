"""What the model finds happens on the real Kafka too, step by step; what cannot be carried out is said in a line."""

from __future__ import annotations

import tempfile

import pytest

from labs.evidence.auditor.audit import audit
from labs.schedules.model.checker import explore
from labs.schedules.model.drivers_and_network import Stage
from labs.schedules.model.stages import MODELS
from labs.schedules.replay.counterexample import Replayed, can_be_replayed, replay_on_kafka
from labs.schedules.replay.player import Player
from labs.schedules.replay.replay_bench import CannotPlay, replay_bench
from labs.schedules.schedule import HELD, Event, Schedule
from tests.schedules.changed import changed
from tests.schedules.test_by_executors import STATES
from tests.schedules.test_model import CHANGED, FOUND, kafka_stage
from tests.tiers import in_tiers

COUNTEREXAMPLES = [
    "at least once",
    "idempotent producer",
    "transactions, no marker",
    "marker read before the epoch",
    "done batch not drained",
    "one epoch for all batches",
    "marker without the plan",
    "marker that expires",
    "two phases, committed undecided",
    "two phases, nobody recovers",
    "two phases, with a timeout",
    "offset first",
    "offset last",
]


@pytest.fixture(scope="module")
def kafka():
    with replay_bench() as started:
        yield started


@pytest.mark.parametrize("name", in_tiers(COUNTEREXAMPLES, ["one epoch for all batches"]))
def test_counterexample_happens_on_kafka_as_the_model_says(kafka, name):
    stage = MODELS[name]
    assert replay_on_kafka(explore(stage).schedule, stage, kafka).differences == []


# Without an epoch librdkafka does not even send what Kafka would refuse; and epochs that come too early do not count.
NOT_STEP_BY_STEP = {("fence",), ("commit",), ("commit", "next epoch")}


@pytest.mark.long
def test_sink_with_a_step_left_out_or_two_swapped_goes_wrong_on_kafka_as_the_model_says(kafka):
    happened, differing = dict[tuple[str, ...], str | None](), set[tuple[str, ...]]()
    for steps, (anomaly, bounds) in CHANGED.items():
        if anomaly:
            stage = Stage("", changed(*steps), **bounds)
            replayed = replay_on_kafka(explore(stage).schedule, stage, kafka)
            happened[steps] = replayed.happened.anomaly
            differing |= {steps} if replayed.differences else set()
    assert happened == {steps: anomaly for steps, (anomaly, _) in CHANGED.items() if anomaly}
    assert differing == NOT_STEP_BY_STEP


@pytest.mark.long
def test_what_differs_is_one_line_a_step():
    found = explore(MODELS["transactions, no marker"]).schedule
    events = list(found.events)
    events[1] = events[1]._replace(answer="epoch 3")  # other numbers in the same order: no difference
    events[2:5] = [event._replace(epoch=3) for event in events[2:5]]
    events[8] = events[8]._replace(answer="epoch 5")
    events[9:11] = [event._replace(epoch=5) for event in events[9:11]]
    events[11] = events[11]._replace(epoch=3, sees=(0, 1))
    happened = Schedule(found.stage, (*events, Event("driver 2", "note", 0)), None)
    assert Replayed(found, happened, audit({}, [])).differences == [
        "step 12: the model says driver 2 commits batch 0 (epoch 1): ok, and a reader sees [0, 1, 0, 1], "
        "and Kafka driver 2 commits batch 0 (epoch 0): ok, and a reader sees [0, 1]",
        "step 13: the model says nothing more, and Kafka driver 2 notes in its checkpoint that batch 0 is done: ok",
        "the model says doubled, and the auditor valid",
    ]


def test_every_counterexample_is_replayed_where_there_is_a_program_for_it():
    assert [name for name, found in FOUND.items() if found and can_be_replayed(MODELS[name])] == COUNTEREXAMPLES
    assert {name for name in MODELS if not can_be_replayed(MODELS[name])} == STATES.keys()


@pytest.mark.long
def test_sink_survives_what_tears_the_one_that_keeps_its_epoch(kafka):
    schedule = explore(MODELS["one epoch for all batches"]).schedule
    fence = Event("driver 1", "fence", 1, answer="epoch 1")
    events = [*schedule.events[:9], fence, *schedule.events[9:]]
    events[13] = events[13]._replace(epoch=1)  # its record
    events[-1] = events[-1]._replace(answer="fenced", sees=None)
    replayed = replay_on_kafka(Schedule("the sink", tuple(events)), MODELS["the sink"], kafka)
    assert replayed.differences == []


@pytest.mark.long
def test_frozen_driver_is_fenced_when_it_wakes_up(kafka):
    def whole_batch(driver, *, plan):
        yield Event(driver, "plan", 0, answer=plan)
        for action in ("read marker", "fence", "read marker", "row", "row", "marker", "commit"):
            yield Event(driver, action, 0)

    first = list(whole_batch("driver 1", plan=""))
    second = list(whole_batch("driver 2", plan="as planned before"))
    start = Event("supervisor", "start", 0, whose="driver 2")
    wakes = [Event("driver 1", "wake"), Event("driver 1", "commit", 0)]
    events = _numbered([*first[:-1], start, *second, *wakes])
    with Player(kafka_stage("the sink"), kafka) as player:
        happened = player.play(Schedule("the sink", tuple(events)))
        assert happened.events[-1].answer == "fenced"
        assert player.visible() == (0, 1)


@pytest.mark.long
def test_replay_leaves_no_file_behind(kafka, tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    replay_on_kafka(explore(MODELS["idempotent producer"]).schedule, MODELS["idempotent producer"], kafka)
    assert not list(tmp_path.iterdir())


@pytest.mark.long
def test_kafka_aborts_what_is_open_for_too_long(kafka):
    events = [Event("driver 1", "plan", 0)]
    actions = ("read marker", "fence", "read marker", "row", "row", "marker")
    events += [Event("driver 1", action, 0) for action in actions]
    events += [Event("broker", "time out"), Event("driver 1", "commit", 0)]
    with Player(kafka_stage("the sink"), kafka, expires=True) as player:
        happened = player.play(Schedule("the sink", tuple(_numbered(events))))
        assert happened.events[-1].answer == "fenced"
        assert player.finish() == "all batches are done"
        assert player.visible() == (0, 1, 2, 3)


@pytest.mark.long
@pytest.mark.parametrize(
    ("event", "why"),
    [
        (Event("driver 1", "commit", 0), "driver 1's next step is another: plan of batch 0"),
        (Event("driver 1", "plan", 1), "driver 1's next step is another: plan of batch 0"),
        (Event("driver 2", "plan", 0), "driver 2 was not started"),
        (Event("driver 1", "plan", 0, answer=HELD), "this cannot be held"),
        (Event("network", "deliver", 0, 0, request="row", whose="driver 1"), "driver 1 has no such request under way"),
        (Event("supervisor", "start", 5, whose="driver 2"), "the checkpoint goes on with batch 0"),
        (Event("supervisor", "start", 0, whose="driver 1"), "driver 1 was started before"),
        (Event("broker", "time out"), "no transaction times out here"),
    ],
)
def test_step_that_cannot_be_carried_out_says_which_and_why(kafka, event, why):
    with Player(kafka_stage("the sink"), kafka) as player, pytest.raises(CannotPlay) as refused:
        player.play(Schedule("the sink", (event,)))
    assert str(refused.value).startswith("step 1 (")
    assert why in str(refused.value)
    assert "\n" not in str(refused.value)


def _numbered(events):
    """Number the records of each run of rows, as a driver sends them."""
    rows = 0
    for event in events:
        rows = rows + 1 if event.action == "row" else 0
        yield event._replace(row=rows - 1) if event.action == "row" else event
