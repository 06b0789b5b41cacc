"""The real sink, walked at random through what the model says can happen, does what the model says it does."""

from __future__ import annotations

import dataclasses
import itertools
import os
import subprocess
import sys

import pytest

from exactly_once_kafka.marker_store import MarkerStore
from exactly_once_kafka.plan import spelled
from exactly_once_kafka.sink import ExactlyOnceKafkaSink
from labs.pipeline.broken_protocols import marker_ignored
from labs.schedules.conformance import WALKED, Walk, conforms, walk
from labs.schedules.model.checker import explore
from labs.schedules.model.state import Marker
from labs.schedules.replay.replay_bench import replay_bench
from labs.schedules.schedule import Event, Schedule

WALKS = range(1, 7)


@pytest.fixture(scope="module")
def kafka():
    with replay_bench() as started:
        yield started


@pytest.mark.long
@pytest.mark.timeout(900)
def test_real_sink_does_what_the_model_says_in_random_walks(kafka, spark):
    found = {seed: conforms(walk(seed), kafka, spark) for seed in WALKS}
    assert not any(found.values()), found


def test_walks_are_drawn_by_seed_and_meet_everything():
    assert walk(3) == walk(3)
    drawn = [event for seed in range(1, 101) for event in walk(seed).schedule.events]
    network = {(event.action, event.request) for event in drawn if event.actor == "network"}
    held = ("fence", "row", "marker", "commit")
    assert network >= {(action, request) for action in ("deliver", "deliver again", "lose") for request in held}
    assert {event.answer for event in drawn} >= {"fenced", "held", "as planned before", "another driver has"}
    assert {"crash", "wake", "start", "note"} <= {event.action for event in drawn}
    ends = [walk(seed).state for seed in range(1, 101)]
    assert {state.marker for state in ends} == {None, Marker(0, 1), Marker(1, 2), Marker(2, 3)}
    assert any(state.refused for state in ends)
    for state in ends:  # the undisturbed end that each walk is taken to
        for _, following in WALKED.ending(state) if not state.refused else ():
            state = following
        assert state.refused or (WALKED.visible(state), state.marker) == ((0, 1, 2), Marker(2, 3))


@pytest.mark.long
def test_walk_is_the_same_in_each_process():
    program = "from labs.schedules.conformance import walk; print([walk(seed).schedule for seed in range(1, 7)])"
    drawn = {
        subprocess.run(
            [sys.executable, "-c", program], env={**os.environ, "PYTHONHASHSEED": seed}, check=True, capture_output=True
        ).stdout
        for seed in ("1", "2", "3")
    }
    assert len(drawn) == 1


@pytest.mark.bench
def test_nothing_is_found_in_what_is_walked_through():
    assert explore(WALKED, limit=30_000).anomaly is None


@pytest.mark.long
def test_sink_that_does_not_decide_is_told_from_the_model(kafka, spark, monkeypatch):
    monkeypatch.setattr(ExactlyOnceKafkaSink, "protocol", staticmethod(marker_ignored))
    drawn = next(each for each in map(walk, itertools.count(1)) if any(map(finds_its_batch, each.schedule.events)))
    assert conforms(drawn, kafka, spark)


@pytest.mark.long
def test_rows_and_marker_on_the_broker_are_compared_with_the_models(kafka, spark):
    drawn = next(each for each in map(walk, itertools.count(1)) if each.state.marker and not each.state.refused)
    other = drawn.state._replace(marker=Marker(7, 8), log=(*drawn.state.log, (9, 7, "committed")))
    assert drawn.state.marker
    rows, (batch, end, _) = WALKED.visible(drawn.state), drawn.state.marker
    assert conforms(drawn._replace(state=other), kafka, spark)[:2] == [
        f"after the walk, rows: the model says {(*rows, 9)}, and Kafka has {rows}",
        f"after the walk, marker: the model says (7, 8), and Kafka has {(batch, end)}",
    ]


@pytest.mark.long
def test_wrong_marker_that_nobody_reads_again_is_seen_on_the_broker(kafka, spark, monkeypatch):
    quiet, last, send = Walk(Schedule("undisturbed", ()), WALKED.start()), WALKED.batches - 1, MarkerStore.send
    assert conforms(quiet, kafka, spark) == []

    def send_another_plan(store, marker, *where):
        if marker.batch_id == last:
            marker = dataclasses.replace(marker, plan=spelled({"end": 99}))
        send(store, marker, *where)

    monkeypatch.setattr(MarkerStore, "send", send_another_plan)
    assert conforms(quiet, kafka, spark) == ["in the end, marker: the model says (2, 3), and Kafka has (2, 99)"]


def finds_its_batch(event: Event) -> bool:
    return event.action == "read marker" and event.answer == f"batch {event.batch}"
