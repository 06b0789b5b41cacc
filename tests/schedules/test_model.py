"""Every interleaving: what the model finds in each stage, that it looks at everything, and that no property sleeps."""

from __future__ import annotations

import dataclasses
import functools
import itertools
from typing import Any

import pytest

from exactly_once_kafka.protocol import STEPS, Batch, Marker, MarkerMismatch, Protocol, Step, exactly_once, is_published
from labs.pipeline import broken_protocols
from labs.schedules.model import state as model
from labs.schedules.model.checker import Explored, explore
from labs.schedules.model.drivers_and_network import Stage, WithSpare, without_checkpoint
from labs.schedules.model.stages import MODELS, OLD_CHECKPOINT, OLD_MARKER
from labs.schedules.model.state import Driver, State, steps_of
from labs.schedules.schedule import ScheduleError
from tests.schedules.changed import changed
from tests.tiers import in_tiers

# (anomaly, steps of the shortest schedule); None: nothing, in any state within the bounds.
FOUND = {
    "at least once": ("doubled", 4),
    "idempotent producer": ("doubled", 6),
    "transactions, no marker": ("doubled", 12),
    "marker read before the epoch": ("doubled", 17),
    "done batch not drained": ("stuck", 14),
    "one epoch for all batches": ("torn", 14),
    "marker without the plan": ("lost", 13),
    "marker that expires": ("doubled", 17),
    "the sink": None,
    "the sink, older checkpoint": None,
    "the sink, marker deleted": None,
    "the sink with a spare": None,
    "an epoch with each commit": None,
    "two phases": None,
    "two phases, committed undecided": ("doubled", 10),
    "two phases, nobody recovers": ("stuck", 6),
    "two phases, with a timeout": ("lost", 5),
    "offset first": ("lost", 4),
    "offset last": ("doubled", 6),
    "offset last, keyed": None,
    "offset in the transaction": None,
    "the sink by executors": None,
    "by executors, uncounted": ("lost", 9),
    "by executors, tasks retried": ("doubled", 13),
    "by executors, partition shared": ("lost", 11),
    "by executors, epoch kept": ("torn", 17),
    "by executors, silence not aborted": ("doubled", 15),
    "by executors, abort keeps the epoch": ("lost", 16),
}
# The sink with one step left out, or with two neighbours swapped -> what is found first, with which bounds; None:
# nothing, in any state within them. Those of which nothing is found do other harm than a reader can see.
FEWER = {"rows": 1, "faults": ("lose",)}
CHANGED: dict[tuple[Step, ...], tuple[str | None, dict[str, Any]]] = {
    ("look",): ("doubled", {"faults": OLD_MARKER}),
    ("wait and look",): (None, FEWER),  # a query is refused whose commit only comes late
    ("fence",): ("stuck", {}),
    ("read marker",): ("doubled", {"rows": 1}),
    ("rows",): ("stuck", {}),
    ("marker",): ("doubled", {"rows": 1}),
    ("commit",): ("lost", {}),
    ("next epoch",): ("torn", {}),
    ("drain",): ("stuck", {}),
    ("look", "fence"): (None, FEWER),  # a query that is refused fences another
    ("fence", "read marker"): ("doubled", {"rows": 1}),
    ("read marker", "rows"): ("doubled", {"faults": OLD_CHECKPOINT}),
    ("rows", "marker"): (None, FEWER),  # they are in one transaction
    ("marker", "commit"): ("doubled", {"rows": 1}),
    ("commit", "next epoch"): ("lost", {}),
}
# What a spare must not do before it is told.
EARLY_SPARES = {
    ("fence",): ("usurped", 5),
    ("read marker",): ("doubled", 22),
    ("read marker", "fence"): ("usurped", 5),
}

pytestmark = pytest.mark.xdist_group("model")  # with who else asks what was `explored`


@functools.cache
def explored(name: str) -> Explored:
    return explore(MODELS[name])


def kafka_stage(name: str) -> Stage:
    """Return a model that is a `Stage`: all but two phases, and whoever reads on."""
    stage = MODELS[name]
    assert isinstance(stage, Stage)
    return stage


def test_every_stage_has_its_verdict_here():
    assert FOUND.keys() == MODELS.keys()


@pytest.mark.parametrize("name", in_tiers(FOUND, FOUND.keys() - {"the sink with a spare"}))
def test_what_is_found_in_a_stage(name):
    found = explored(name)
    assert found.complete
    assert (found.anomaly and (found.anomaly, len(found.schedule.events))) == FOUND[name], found.schedule


@pytest.mark.bench
@pytest.mark.parametrize("steps", CHANGED, ids=" and ".join)
def test_sink_with_one_step_left_out_or_two_swapped_is_caught(steps):
    anomaly, bounds = CHANGED[steps]
    found = explore(Stage("", changed(*steps), **bounds))
    assert (found.anomaly, found.complete) == (anomaly, True), found.schedule


def test_every_step_of_the_sink_and_every_two_neighbours_are_changed():
    """The abort, of which only executors have need, is left out in test_by_executors."""
    in_order = [step for step in steps_of(exactly_once) if step in STEPS]
    assert {steps for steps in CHANGED if len(steps) == 1} == {(step,) for step in STEPS} - {("abort",)}
    assert {steps for steps in CHANGED if len(steps) == 2} == set(itertools.pairwise(in_order))


@pytest.mark.bench
@pytest.mark.parametrize("early", EARLY_SPARES)
def test_spare_that_does_not_wait_until_it_is_told_is_caught(early):
    """Who fences early stops a driver that lives; who reads the marker early goes on with one that is no longer so."""
    found = explore(WithSpare("", exactly_once, early=early))
    assert (found.anomaly, len(found.schedule.events)) == EARLY_SPARES[early]


@pytest.mark.long
def test_spare_takes_over_from_one_that_is_dead_and_from_one_that_only_sleeps():
    taken = explored("the sink with a spare").taken
    assert taken.keys() == explored("the sink").taken.keys() - {("supervisor", "start", "")} | {
        ("supervisor", "warm up", ""),
        ("supervisor", "hand over", ""),
        ("driver", "take over", ""),
    }
    stage = kafka_stage("the sink with a spare")
    states = reachable(dataclasses.replace(stage, batches=1, rows=1, faults=()))
    both = [state.drivers for state in states if len(state.drivers) == 2]
    assert any(spare.batch == 1 and first.alive and first.batch == 0 for first, spare in both)  # never heard of again
    assert any(spare.batch == 1 and not first.alive for first, spare in both)  # it woke up, and was fenced
    assert any(first.batch == 1 and not spare.alive for first, spare in both)  # it woke up in time


def reachable(stage):
    seen, waiting = set(), [stage.start()]
    while waiting:
        state = waiting.pop()
        if state not in seen:
            seen.add(state)
            waiting += [following for _, following in stage.moves(state)]
    return seen


@pytest.mark.bench
def test_every_action_and_every_fault_is_taken_in_the_sink():
    requests = ("fence", "read marker", "row", "marker", "commit")
    taken = explored("the sink").taken
    expected = {("driver", action, "") for action in ("plan", "note", *requests)}
    expected |= {("network", fate, what) for fate in ("deliver", "deliver again", "lose") for what in requests}
    expected |= {("supervisor", "start", ""), ("broker", "time out", "")}
    assert taken.keys() == expected
    assert ("supervisor", "restore and start", "") in explored("the sink, older checkpoint").taken
    assert ("broker", "forget the marker", "") in explored("marker that expires").taken


@pytest.mark.bench
def test_every_action_and_every_fault_is_taken_in_the_other_models():
    """Two phases, and whoever reads on: all that their programs and their faults are made of."""
    starts = {("supervisor", "start", "")}
    two_phases = {("driver", action, "") for action in ("fence", "row", "decide", "commit")} | starts
    assert explored("two phases").taken.keys() == two_phases
    assert ("broker", "time out", "") in explored("two phases, with a timeout").taken
    for name, actions in {
        "offset last, keyed": ("read", "write", "commit the offset"),
        "offset in the transaction": ("read", "write with the offset"),
    }.items():
        consumed = {("consumer", action, "") for action in actions} | {("supervisor", "start at record", "")}
        assert explored(name).taken.keys() == consumed


@pytest.mark.bench
def test_sink_refuses_where_the_checkpoint_is_an_older_one():
    assert any(state.refused for state in reachable(MODELS["the sink, older checkpoint"]))


@pytest.mark.bench
def test_without_the_note_in_the_checkpoint_a_deleted_marker_doubles():
    """The first look notes in the checkpoint in which topic the marker is to be. Whoever does not look cannot know."""
    assert explore(Stage("", changed("look"), faults=OLD_MARKER)).anomaly == "doubled"


@pytest.mark.bench
@pytest.mark.parametrize(
    ("name", "restarts_from", "anomaly"),
    [
        ("at least once", "earliest", "doubled"),
        ("transactions, no marker", "earliest", "doubled"),
        ("at least once", "latest", "lost"),
        ("the sink", "earliest", None),
        ("the sink", "latest", "lost"),
    ],
)
def test_what_a_restart_without_a_checkpoint_does(name, restarts_from, anomaly):
    """The sink doubles nothing: it finds another query's marker, and refuses. Nobody saves what a restart skips."""
    found = explore(without_checkpoint(dataclasses.replace(kafka_stage(name), rows=1, faults=()), restarts_from))
    assert (found.complete, found.anomaly) == (True, anomaly), found.schedule
    assert found.anomaly is None or "start anew" in {event.action for event in found.moves}


@pytest.mark.bench
def test_marker_that_is_a_write_of_its_own_can_come_too_late():
    def without_transaction(batch: Batch, has_epoch: bool) -> Protocol:
        if is_published((yield "read marker"), batch):
            yield "drain"
            return
        yield "rows"
        yield "marker"

    assert explore(Stage("", without_transaction, faults=())).anomaly == "doubled"


@pytest.mark.parametrize(
    ("state", "anomaly"),
    [
        (State(planned=(2,), log=((0, 0, "committed"), (1, 0, "committed"), (0, 0, "committed"))), "doubled"),
        (State(planned=(2,), log=((0, 0, "committed"), (1, 0, "aborted")), noted=0), "lost"),
        (State(planned=(2, 4), log=((2, 1, "committed"), (3, 1, "committed"))), "out of order"),
        (State(planned=(2,), log=((0, 0, "committed"),)), "torn"),
        (
            State(
                planned=(2,),
                log=((0, 0, "committed"), (1, 0, "committed")),
                marker=model.Marker(0, 2),
                noted=0,
                hole=True,
            ),
            "stuck",
        ),
        (State(planned=(2,), log=((0, 0, "open"), (1, 0, "open"))), None),
    ],
)
def test_each_property_is_looked_at(state, anomaly):
    assert kafka_stage("the sink").anomaly(state) == anomaly


@pytest.mark.bench
def test_checker_that_forgets_a_property_is_found_out():
    class MarkerTopicUnsafe(Stage):
        def anomaly(self, state: State) -> str | None:
            found = super().anomaly(state)
            return None if found == "torn" else found

    torn = FOUND["one epoch for all batches"]
    assert torn
    assert explore(MarkerTopicUnsafe("", broken_protocols.one_epoch_for_all_batches), limit=20_000).anomaly != torn[0]


def test_protocol_that_is_none_is_one_clear_line():
    def prays(batch: Batch, has_epoch: bool) -> Protocol:
        yield "pray"  # type: ignore[misc]

    def plans(batch: Batch, has_epoch: bool) -> Protocol:
        yield "plan"  # type: ignore[misc]

    def never_ends(batch: Batch, has_epoch: bool) -> Protocol:
        while True:
            yield "rows"

    reasons = {prays: "there is no step 'pray'; there are: look", plans: 'no step "plan"', never_ends: "no end"}
    for protocol, why in reasons.items():
        with pytest.raises(ScheduleError, match=why):
            dataclasses.replace(kafka_stage("the sink"), protocol=protocol)


def test_driver_is_told_what_the_protocol_asks_for_and_refuses_where_that_does():
    """What a driver does next is what the generator says after the same answers: in it the real decision is taken."""
    heard = []

    def listens(batch: Batch, has_epoch: bool) -> Protocol:
        heard.append((batch, has_epoch, (yield "look")))
        raise MarkerMismatch("whatever it is")

    stage = Stage("", listens, faults=(), drivers=1)
    state = stage.start()._replace(planned=(2, 3), noted=0, marker=model.Marker(0, 2), drivers=(Driver(1),))
    while moves := list(stage.moves(state)):
        [(_, state)] = moves
    batch = Batch("query 0", 1, '{"end":3}', '{"end":2}')
    assert heard[-1] == (batch, False, Marker(0, "query 0", '{"end":2}'))
    assert state.refused


@pytest.mark.bench
def test_bounds_can_grow():
    three = dataclasses.replace(kafka_stage("at least once"), batches=3, rows=1)
    assert explore(three).anomaly == "doubled"


@pytest.mark.bench
def test_limit_is_said():
    found = explore(MODELS["the sink"], limit=500)
    assert (found.anomaly, found.complete) == (None, False)
    assert 500 < found.states < 600


def test_driver_alone_on_a_quiet_network_publishes_everything():
    stage = dataclasses.replace(kafka_stage("the sink"), faults=(), drivers=1)
    state = stage.start()
    while moves := list(stage.moves(state)):
        _, state = moves[0]  # what was sent arrives first
    assert stage.visible(state) == (0, 1, 2, 3)
    assert state.drivers == (Driver(batch=2, has_epoch=True, epoch=2, fresh=False),)
