"""The judges of a student's protocol: of its steps, of one driver alone, of every interleaving, and on the real Kafka.

A protocol that no driver could run is refused (`stage_of`). The others are explored in the model, and drawn if they go
wrong.

Guarantee: passed means that the model tried all schedules within its bounds, and that Kafka did what the model says
in some of them. Limitations: two batches of two records, two drivers, and the faults of `Stage.faults`, each once; an
older checkpoint is tried separately, without these faults.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from labs.evidence.auditor.anomalies import Audit
from labs.exercises.checker.protocol_table import NoProtocol, all_courses, from_table, table_of
from labs.exercises.checker.report import timeline
from labs.exercises.checker.rounds import EXAMPLES, History, ended_badly
from labs.exercises.checker.scenario import DOUBLED, LOST, WRONG, Finding, Grade, Lab, NoTable, Scenario
from labs.schedules.conformance import played, walk
from labs.schedules.model.checker import Explored, explore, with_sight
from labs.schedules.model.drivers_and_network import Stage
from labs.schedules.model.stages import OLD_CHECKPOINT
from labs.schedules.model.state import State
from labs.schedules.replay.counterexample import replay_on_kafka
from labs.schedules.replay.player import Player
from labs.schedules.replay.replay_bench import CannotPlay, ReplayBench, replay_bench
from labs.schedules.schedule import Event, Schedule, compact
from labs.schedules.sequence_diagram import draw
from labs.schedules.svg import Drawing

WALKS = (1, 17)  # seeds
OLDER = "with an older checkpoint"


def the_steps(lab: Lab, scenario: Scenario) -> Finding:
    """Run publish(batch, has_epoch) in the student's process, in every situation, and read its steps."""
    began = time.time()
    run = lab.process.run("publish", {}, began)
    finding = partial(scenario.finding, began, timeline=timeline([(1, event) for event in run.events]))
    if not run.well:
        return ended_badly(scenario, History([run]), began)
    [answer] = [event for event in run.events if event["kind"] == "answer"]
    try:
        if symptom := answer.get("symptom"):
            raise NoProtocol(str(symptom), answer["what"], str(answer.get("cause", "")))
        stage = lab.kept["stage"] = stage_of(answer.get("table"))
    except NoProtocol as error:
        return finding(grade=Grade.FAILED, symptom=error.symptom, cause=error.cause, detail=str(error))
    except NoTable as error:
        return finding(grade=Grade.UNKNOWN, detail=str(error))
    return finding(grade=Grade.PASSED, detail=", ".join(stage.steps), timeline=[])


def nobody_disturbs(lab: Lab, scenario: Scenario) -> Finding:
    """Let one driver of the model run to the end on a quiet network."""
    began, stage = time.time(), lab.kept["stage"]
    schedule, state = undisturbed(stage)
    seen, records = stage.visible(state), stage.batches * stage.rows
    symptom = ""
    if len(set(seen)) < len(seen):
        symptom = DOUBLED
    elif state.noted < stage.batches - 1:
        symptom = "stuck"
    elif len(seen) < records:
        symptom = LOST
    refuses = ", and then it refuses" if state.refused else ""
    detail = f"one driver alone: {len(set(seen))} of {records} records are published{refuses}"
    if not symptom:
        return scenario.finding(began, grade=Grade.PASSED, detail=detail)
    return scenario.finding(began, **_shown(schedule._replace(anomaly=symptom), records), detail=detail)


def in_every_interleaving(lab: Lab, scenario: Scenario) -> Finding:
    """Explore all schedules, and show the shortest that goes wrong."""
    began = time.time()
    stage, found = lab.kept["found"] = every_interleaving(lab.kept["stage"])
    if not found.anomaly:
        return scenario.finding(began, grade=Grade.PASSED, detail=f"none of {found.states:,} states is wrong")
    older = "" if stage == lab.kept["stage"] else f" {OLDER}"
    steps = len(found.schedule.events)
    detail = f"the shortest way there has {steps} steps{older}; {found.states:,} states were tried to find it"
    return scenario.finding(began, **_shown(found.schedule, _due(found.schedule)), detail=detail)


def on_kafka(lab: Lab, scenario: Scenario) -> Finding:
    """Replay on a Kafka of its own the schedule that the model found, or random walks if it found none."""
    began = time.time()
    stage, found = lab.kept["found"]
    with replay_bench() as bench:
        told = _replayed(stage, found, bench) if found.anomaly else _walked(lab.kept["stage"], bench)
    return scenario.finding(began, **told)


def _replayed(stage: Stage, found: Explored, bench: ReplayBench) -> dict[str, Any]:
    try:
        replayed = replay_on_kafka(found.schedule, stage, bench)
    except CannotPlay as error:
        return {"grade": Grade.UNKNOWN, "detail": str(error)}
    audit, steps = replayed.audit, len(found.schedule.events)
    if replayed.differences:
        detail = f"Kafka does not do what the model says: {replayed.differences[0]}"
        return {"grade": Grade.UNKNOWN, "detail": detail, "timeline": _lines(replayed.happened)}
    shown = _shown(replayed.happened, _due(found.schedule))
    detail = f"the same happened in {steps} steps, and the auditor says {audit.verdict}: {_in_words(audit)}"
    return {
        **shown,
        "detail": detail,
        "examples": [text for texts in audit.examples.values() for text in texts][:EXAMPLES],
    }


def _walked(stage: Stage, bench: ReplayBench) -> dict[str, Any]:
    stage, steps = dataclasses.replace(stage, rows=1, drivers=3, faults=("deliver again", "lose")), 0
    for seed in WALKS:
        drawn = walk(seed, stage)
        with Player(stage, bench) as player:
            differences = played(drawn, player)
        if differences:
            detail = f"walk {seed}: Kafka does not do what the model says: {differences[0]}"
            return {"grade": Grade.UNKNOWN, "detail": detail, "timeline": _lines(drawn.schedule)}
        steps += len(drawn.schedule.events)
    return {"grade": Grade.PASSED, "detail": f"Kafka did what the model says in all {steps} steps of two random walks"}


def _shown(schedule: Schedule, due: int) -> dict[str, Any]:
    """Return the fields of a finding for a schedule that went wrong; `due` records should be visible after it."""
    seen = _seen(schedule)
    told = (
        f"in the end a read_committed reader sees records {', '.join(map(str, seen))}" if seen else "nothing is visible"
    )
    return {
        "grade": Grade.FAILED,
        "symptom": schedule.anomaly,
        "lost": len(set(range(due)) - set(seen)),
        "doubled": len(seen) - len(set(seen)),
        "examples": [f"{told}; {due} are noted as done" if due else told],
        "timeline": _lines(schedule),
    }


def _seen(schedule: Schedule) -> tuple[int, ...]:
    return next((event.sees for event in reversed(schedule.events) if event.sees is not None), ())


def _due(schedule: Schedule) -> int:
    """Return how many records the checkpoint notes as done."""
    due, planned = 0, dict[int | None, int]()
    for event in schedule.events:
        if event.action == "plan" and event.row is not None:
            planned[event.batch] = event.row + 1
        elif event.action == "note" and not event.answer:
            due = max(due, planned[event.batch])
    return due


def _lines(schedule: Schedule) -> list[tuple[str, str]]:
    def line(sees: tuple[int, ...] | None) -> str:
        return "" if sees is None else f" — a reader sees {', '.join(map(str, sees)) or 'nothing'}"

    return [(f"{n}.", f"{event}{line(event.sees)}") for n, event in enumerate(schedule.events, 1)]


def _in_words(audit: Audit) -> str:
    found = {kind: number for kind, number in audit.counts.items() if number and kind.is_error}
    return ", ".join(f"{kind.name} {number} ({kind.meaning.rstrip('.')})" for kind, number in found.items())


FENCES = ("fence", "next epoch")
NAME = "your protocol"


def stage_of(table: object) -> Stage:
    """Return a table as a stage of the model. Raises NoTable, and NoProtocol if no driver could run it."""
    protocol = from_table(table)
    every = all_courses(table)
    *first, end = every[0][1]  # in batch 0, where nothing is marked as published
    if end is None and "rows" not in first:
        raise NoProtocol(
            WRONG, f"publish ends without 'rows' in batch 0, of which nothing is published: {_listed(first)}"
        )
    if any(not {"commit", *FENCES}.isdisjoint(steps) for _, steps in every):
        for situation, steps in every:
            _check_transactions(situation.has_epoch, steps)
    return Stage(NAME, protocol)


def _check_transactions(has_epoch: bool, steps: Sequence[str | None]) -> None:
    """Raise NoProtocol for a sequence with a step that a Kafka client would refuse or ignore."""
    written = False
    for n, step in enumerate(steps):
        if step in ("rows", "marker", "commit") and not has_epoch:
            raise NoProtocol(
                WRONG, f"{step!r} has no 'fence' before it, and a transaction needs an epoch: {_listed(steps[: n + 1])}"
            )
        if step == "commit" and not written:
            raise NoProtocol(
                WRONG, f"'commit' has neither 'rows' nor 'marker' before it to commit: {_listed(steps[: n + 1])}"
            )
        has_epoch = has_epoch or step in FENCES
        written = step in ("rows", "marker") or (written and step not in ("commit", *FENCES))


def _listed(steps: Sequence[str | None]) -> str:
    return ", ".join(map(str, steps)) or "no step at all"


def undisturbed(stage: Stage) -> tuple[Schedule, State]:
    """Return what a single, undisturbed driver does, and the state that it leaves."""
    stage = dataclasses.replace(stage, faults=(), drivers=1)
    state, moves = stage.start(), list[Event]()
    while following := next(stage.moves(state), None):
        moves.append(with_sight(stage, following[0], state, following[1]))
        state = following[1]
    return Schedule(stage.name, compact(moves)), state


def every_interleaving(stage: Stage) -> tuple[Stage, Explored]:
    """Explore the stage with its default faults and, if that finds nothing, with an older checkpoint too.

    Returns the stage that has an anomaly, or the last one; `states` counts those of both.
    """
    by_default = explore(stage)
    if by_default.anomaly:
        return stage, by_default
    restored = dataclasses.replace(stage, faults=OLD_CHECKPOINT)
    found = explore(restored)
    return restored, dataclasses.replace(found, states=by_default.states + found.states)


def counterexample(publish: Callable[..., Any]) -> Drawing:
    """Draw the shortest schedule in which a protocol goes wrong, an empty one if there is none. Raises NoProtocol."""
    found = explore_batch(publish)
    if found.anomaly:
        return draw(found.schedule)
    return draw(Schedule(f"{NAME}, {found.states:,} states", ()))


def explore_batch(publish: Callable[..., Any]) -> Explored:
    """Return what the model finds for a protocol. Raises NoProtocol."""
    _, found = every_interleaving(stage_of(table_of(publish)))
    return found
