"""The stages of the course against each fault: the exact numbers that the lessons show.

The storm, all faults in one run against all stages, is the demo's test.
"""

from __future__ import annotations

import uuid

import pytest

from exactly_once_kafka.sink import ExactlyOnceKafkaSink
from labs.equipment.topics import create_topic
from labs.evidence.auditor.expected import count_by_window
from labs.faults.fault_points import Fault
from labs.faults.supervisor import GaveUp
from labs.pipeline.log.generate import classroom
from labs.pipeline.log.replay import close_windows, replay
from labs.runs import staircase
from labs.runs.staircase import CHECKPOINT, NO_CHECKPOINT, Stage
from tests.conftest import RECORDS_PER_BATCH

pytestmark = pytest.mark.long


@pytest.fixture(scope="module")
def climb(spark, broker):
    """Run a stage of the staircase through a fault; returns (lost, duplicated)."""
    servers, accesses = broker.bootstrap_servers, list(classroom(windows=4, clients=8))
    source = create_topic(servers, f"classroom-{uuid.uuid4().hex}", 1)
    close_windows(replay(accesses, servers, source).last_time_ms, servers, source)

    def climb(stage, fault, **options):
        expected = count_by_window(accesses)
        options |= {"source_topic": source, "records_per_batch": RECORDS_PER_BATCH}
        outcome = staircase.run_stage(stage, spark, servers, expected, fault, **options)
        assert outcome.struck == outcome.faults
        return outcome

    return climb


# Batches 3, 4, … emit a window of 8 results each; the fault strikes in batch 4.
@pytest.mark.parametrize(
    ("stage", "point", "duplicated"),
    [
        (NO_CHECKPOINT, "before_rows", 8),
        (NO_CHECKPOINT, "mid_rows", 12),
        (NO_CHECKPOINT, "after_commit", 16),
        (NO_CHECKPOINT, "before_checkpoint", 16),
        (CHECKPOINT, "before_rows", 0),
        (CHECKPOINT, "mid_rows", 4),
        (CHECKPOINT, "after_commit", 8),
        (CHECKPOINT, "before_checkpoint", 8),
    ],
    ids=lambda value: getattr(value, "name", value),
)
def test_crash_doubles_exactly_what_was_published(climb, stage, point, duplicated):
    outcome = climb(stage, Fault(point, 4))
    assert outcome.finished
    assert (outcome.audit.lost, outcome.audit.duplicated) == (0, duplicated)


def test_run_that_cannot_go_on_is_given_up_and_audited_only_if_that_was_asked_for(climb):
    refuses = Stage("no checkpoint, and a marker", ExactlyOnceKafkaSink, keeps_checkpoint=False)
    outcome = climb(refuses, Fault("before_commit", 4), may_give_up=True)
    assert not outcome.finished
    assert "SinkRefused" in str(outcome.attempts[-1].error)
    assert outcome.audit.lost > 0
    with pytest.raises(GaveUp):
        climb(refuses, Fault("before_commit", 4))
