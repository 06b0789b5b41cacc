"""The judges of a student's batch: what it returned, one driver alone, every interleaving, and the real Kafka.

Guarantee: passed means that the model tried all schedules within its bounds, and that Kafka did as the model says in
some of them. Where it stops: two batches of two records, two drivers, and the faults of `Stage.luck`, each once.
"""

from __future__ import annotations

import dataclasses
import time
from functools import partial
from typing import Any

from labs.evidence.auditor.verdict import Audit
from labs.exercises.checker.batch_steps import NoBatch, Unreadable, every_interleaving, stage_of, undisturbed
from labs.exercises.checker.finding import DOUBLED, LOST, WRONG, Finding, Grade
from labs.exercises.checker.rounds import EXAMPLES, History, ended_badly
from labs.exercises.checker.scenario import Lab, Scenario
from labs.exercises.checker.timeline import timeline
from labs.schedules.conformance import played, walk
from labs.schedules.model.checker import Explored
from labs.schedules.model.kafka import Stage
from labs.schedules.replay.bench import CannotPlay, ReplayBench, replay_bench
from labs.schedules.replay.player import Player
from labs.schedules.replay.replay import replay_on_kafka
from labs.schedules.schedule import Schedule

WALKS = (1, 17)  # seeds
OLDER = "with an older checkpoint"
UNREADABLE = "unreadable"


def the_steps(lab: Lab, scenario: Scenario) -> Finding:
    """Call batch() in the student's process, and read what it returned."""
    began = time.time()
    run = lab.process.run("batch", {}, began)
    finding = partial(scenario.finding, began, timeline=timeline([(1, event) for event in run.events]))
    if not run.well:
        return ended_badly(scenario, History([run]), began)
    [answer] = [event for event in run.events if event["kind"] == "answer"]
    try:
        if answer["texts"] is None:
            raise Unreadable(f"batch() returns a list of steps, and not {answer['what']}")
        lab.kept["stage"] = stage_of(answer["texts"])
    except NoBatch as error:
        symptom = UNREADABLE if isinstance(error, Unreadable) else WRONG
        return finding(grade=Grade.FAILED, symptom=symptom, detail=str(error))
    return finding(grade=Grade.PASSED, detail=", ".join(answer["texts"]), timeline=[])


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
    detail = f"one driver alone: {len(set(seen))} of {records} records are published"
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
    """Carry out on a Kafka of its own what the model found, or if that is nothing, random walks."""
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
    stage, steps = dataclasses.replace(stage, rows=1, drivers=3, luck=("deliver again", "lose")), 0
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
    """Return what a finding tells of a schedule that went wrong, after which `due` records should be there."""
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
