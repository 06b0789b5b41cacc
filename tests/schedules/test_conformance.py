"""The real sink, walked at random through what the model says can happen, does what the model says it does."""

from __future__ import annotations

import itertools

import pytest

from labs.schedules.conformance import WALKED, conforms, walk
from labs.schedules.model.checker import explore
from labs.schedules.replay.player import replay_bench
from labs.schedules.replay.sink_driver import GatedSink
from labs.schedules.schedule import Event

WALKS = range(1, 7)


@pytest.fixture(scope="module")
def kafka():
    with replay_bench() as started:
        yield started


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
    assert any(walk(seed).state.noted == WALKED.batches - 1 for seed in range(1, 101))


def test_nothing_is_found_in_what_is_walked_through():
    assert explore(WALKED, limit=100_000).anomaly is None


def test_sink_that_does_not_decide_is_told_from_the_model(kafka, spark, monkeypatch):
    monkeypatch.setattr(GatedSink, "decide", lambda *_: False)
    finds_it_done = next(walk(seed) for seed in itertools.count(1) if any(map(_is_skipped, walk(seed).schedule.events)))
    assert conforms(finds_it_done, kafka, spark)


def _is_skipped(event: Event) -> bool:
    """Tell whether a driver reads that its batch is done already."""
    return event.action == "read marker" and event.answer == f"batch {event.batch}"
