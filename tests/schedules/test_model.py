"""Every interleaving: what the model finds in each stage, that it looks at everything, and that no property sleeps."""

from __future__ import annotations

import dataclasses
import functools

import pytest

from labs.schedules.model.checker import Explored, explore
from labs.schedules.model.kafka import Stage
from labs.schedules.model.spare import WithSpare
from labs.schedules.model.stages import AS_BUILT, MODELS, OLD_MARKER, SINK, TRANSACTION
from labs.schedules.model.state import Driver, Marker, State
from labs.schedules.model.variants import AsBuilt, without_checkpoint
from labs.schedules.schedule import ScheduleError
from tests.tiers import in_tiers

# (anomaly, steps of the shortest schedule); None: nothing, in any state within the bounds.
FOUND = {
    "at least once": ("doubled", 4),
    "idempotent producer": ("doubled", 6),
    "transactions, no marker": ("doubled", 12),
    "marker read before the epoch": ("doubled", 17),
    "done batch not drained": ("stuck", 14),
    "one epoch for all batches": ("torn", 13),
    "marker without the plan": ("lost", 13),
    "marker that expires": ("doubled", 17),
    "the sink": None,
    "the sink, older checkpoint": None,
    "the sink, marker deleted": None,
    "the sink as built": None,
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
    "shared transaction": None,
    "shared, committed uncounted": ("lost", 5),
    "shared, rows without numbers": ("doubled", 7),
    "the sink by executors": None,
    "by executors, uncounted": ("lost", 10),
    "by executors, tasks retried": ("doubled", 12),
    "by executors, partition shared": ("lost", 10),
    "by executors, epoch kept": ("torn", 17),
    "by executors, silence not aborted": ("doubled", 15),
    "by executors, abort keeps the epoch": ("lost", 15),
}
# Each takes one thing away from the sink, or puts it in the wrong place.
MUTANTS = {
    "no fencing": Stage("", tuple(step for step in SINK if step != "fence")),
    "no marker": Stage("", TRANSACTION),
    "marker read first": MODELS["marker read before the epoch"],
    "as built, looked at once": AsBuilt(
        "", tuple(step for step in AS_BUILT if step != "read marker"), keeps_epoch=True
    ),
    "one epoch": Stage("", SINK, keeps_epoch=True),
    "not drained": Stage("", SINK, drains=False),
    "marker without the plan": MODELS["marker without the plan"],
    "marker in a transaction of its own, later": Stage(
        "", ("plan", "fence", "read marker", "rows", "commit", "marker", "commit", "note")
    ),
    "marker in a transaction of its own, earlier": Stage(
        "", ("plan", "fence", "read marker", "marker", "commit", "rows", "commit", "note")
    ),
    "noted before it is committed": Stage("", ("plan", "fence", "read marker", "rows", "marker", "note", "commit")),
}
# What a spare must not do before it is told, in the sink as built and in the sink as it is explained.
EARLY_SPARES = {
    ("fence",): ("usurped", 5, 4),
    ("read marker",): ("doubled", 22, 20),
    ("read marker", "fence"): ("usurped", 5, 4),
}

pytestmark = pytest.mark.xdist_group("model")  # with who else asks what was `explored`


@functools.cache
def explored(name: str) -> Explored:
    return explore(MODELS[name])


def kafka_stage(name: str) -> Stage:
    """Return a model that is a `Stage`: all but two phases, whoever reads on, and the shared transaction."""
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
@pytest.mark.parametrize("mutant", MUTANTS)
def test_mutant_of_the_sink_is_caught(mutant):
    assert explore(MUTANTS[mutant]).anomaly


@pytest.mark.bench
@pytest.mark.parametrize("early", EARLY_SPARES)
def test_spare_that_does_not_wait_until_it_is_told_is_caught(early):
    """Who fences early stops a driver that lives; who reads the marker early goes on with one that is no longer so."""
    as_built = explore(WithSpare("", AS_BUILT, keeps_epoch=True, early=early))
    explained = explore(WithSpare("", SINK, early=early))
    assert as_built.anomaly == explained.anomaly == EARLY_SPARES[early][0]
    assert (len(as_built.schedule.events), len(explained.schedule.events)) == EARLY_SPARES[early][1:]


@pytest.mark.bench
def test_spare_takes_over_from_one_that_is_dead_and_from_one_that_only_sleeps():
    taken = explored("the sink with a spare").taken
    assert taken.keys() == explored("the sink as built").taken.keys() - {("supervisor", "start", "")} | {
        ("supervisor", "warm up", ""),
        ("supervisor", "hand over", ""),
        ("driver", "take over", ""),
    }
    stage = kafka_stage("the sink with a spare")
    states = reachable(dataclasses.replace(stage, batches=1, rows=1, luck=()))
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
    """Two phases, whoever reads on, and the shared transaction: all that their programs and their luck are made of."""
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
    shared = {("network", fate, "row") for fate in ("deliver", "deliver again", "lose the answer")}
    shared |= {("supervisor", "run again", ""), ("driver", "commit", "")}
    shared |= {(task, "row", "") for task in ("task", "task 1 again", "task 2 again")}
    assert explored("shared transaction").taken.keys() == shared


@pytest.mark.bench
def test_sink_refuses_where_the_checkpoint_is_an_older_one():
    assert any(state.refused for state in reachable(MODELS["the sink, older checkpoint"]))


@pytest.mark.bench
def test_without_the_note_in_the_checkpoint_a_deleted_marker_doubles():
    assert explore(Stage("", SINK, luck=OLD_MARKER)).anomaly == "doubled"


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
    found = explore(without_checkpoint(dataclasses.replace(kafka_stage(name), rows=1, luck=()), restarts_from))
    assert (found.complete, found.anomaly) == (True, anomaly), found.schedule
    assert found.anomaly is None or "start anew" in {event.action for event in found.moves}


@pytest.mark.bench
def test_marker_that_is_a_write_of_its_own_can_come_too_late():
    without_transaction = Stage("", ("plan", "read marker", "rows", "marker", "note"), luck=())
    assert explore(without_transaction).anomaly == "doubled"


@pytest.mark.parametrize(
    ("state", "anomaly"),
    [
        (State(planned=(2,), log=((0, 0, "committed"), (1, 0, "committed"), (0, 0, "committed"))), "doubled"),
        (State(planned=(2,), log=((0, 0, "committed"), (1, 0, "aborted")), noted=0), "lost"),
        (State(planned=(2, 4), log=((2, 1, "committed"), (3, 1, "committed"))), "out of order"),
        (State(planned=(2,), log=((0, 0, "committed"),)), "torn"),
        (
            State(
                planned=(2,), log=((0, 0, "committed"), (1, 0, "committed")), marker=Marker(0, 2), noted=0, hole=True
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
    class Forgetful(Stage):
        def anomaly(self, state: State) -> str | None:
            found = super().anomaly(state)
            return None if found == "torn" else found

    torn = FOUND["one epoch for all batches"]
    assert torn
    assert explore(Forgetful("", SINK, keeps_epoch=True), limit=20_000).anomaly != torn[0]


@pytest.mark.parametrize(
    ("program", "why"),
    [(("rows", "note"), 'a batch begins with "plan"'), (("plan", "pray"), "there is no step 'pray'")],
)
def test_program_that_is_none_is_one_clear_line(program, why):
    with pytest.raises(ScheduleError, match=why):
        dataclasses.replace(kafka_stage("the sink"), program=program)


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
    stage = dataclasses.replace(kafka_stage("the sink"), luck=(), drivers=1)
    state = stage.start()
    while moves := list(stage.moves(state)):
        [(_, state)] = moves
    assert stage.visible(state) == (0, 1, 2, 3)
    assert state.drivers == (Driver(batch=2, epoch=1, fresh=False),)
