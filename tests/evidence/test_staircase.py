"""The stages of the course against each fault: the exact numbers that the lessons and the demo show."""

from __future__ import annotations

import pytest

from labs.equipment import create_topic
from labs.evidence import staircase
from labs.evidence.expected import count_by_window
from labs.evidence.staircase import CHECKPOINT, EXACTLY_ONCE, IDEMPOTENT, NO_CHECKPOINT, TRANSACTIONS
from labs.faults import Fault, LostAcknowledgement, proxied_broker
from labs.pipeline import close_windows, replay
from labs.pipeline.generate import classroom


@pytest.fixture(scope="module")
def climb(spark):
    """Run a stage of the staircase through faults, behind a proxy; returns (lost, duplicated)."""
    with proxied_broker() as (broker, proxy):
        servers, accesses = broker.bootstrap_servers, list(classroom())
        source = create_topic(servers, "classroom", 1)
        close_windows(replay(accesses, servers, source).last_time_ms, servers, source)

        def climb(stage, *faults):
            faults = [LostAcknowledgement(3, proxy) if fault == "lost_acknowledgement" else fault for fault in faults]
            outcome = staircase.run_stage(
                stage, spark, servers, count_by_window(accesses), *faults, source_topic=source, records_per_batch=80
            )
            assert outcome.struck == outcome.faults
            return outcome.audit.lost, outcome.audit.duplicated

        yield climb


# Batches 3, 4, … emit a window of 8 results each; the fault strikes in batch 4.
@pytest.mark.parametrize(
    ("stage", "point", "duplicated"),
    [
        (NO_CHECKPOINT, "before_write", 8),
        (NO_CHECKPOINT, "mid_transaction", 12),
        (NO_CHECKPOINT, "after_commit", 16),
        (NO_CHECKPOINT, "before_checkpoint", 16),
        (CHECKPOINT, "before_write", 0),
        (CHECKPOINT, "mid_transaction", 4),
        (CHECKPOINT, "after_commit", 8),
        (CHECKPOINT, "before_checkpoint", 8),
    ],
    ids=lambda value: getattr(value, "name", value),
)
def test_crash_doubles_exactly_what_was_published(climb, stage, point, duplicated):
    assert climb(stage, Fault(point, 4)) == (0, duplicated)


STORM = ("lost_acknowledgement", Fault("mid_transaction", 4), Fault("after_commit", 5))


@pytest.mark.parametrize(
    ("stage", "duplicated"),
    [(NO_CHECKPOINT, 40), (CHECKPOINT, 16), (IDEMPOTENT, 12), (TRANSACTIONS, 8), (EXACTLY_ONCE, 0)],
    ids=lambda value: getattr(value, "name", value),
)
def test_storm_doubles_less_with_every_mechanism(climb, stage, duplicated):
    assert climb(stage, *STORM) == (0, duplicated)
