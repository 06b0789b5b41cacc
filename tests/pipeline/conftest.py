"""A source topic with a classroom log: 12 windows of 8 clients, 10 requests each, so that every count is 10."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from labs.evidence.expected import count_by_window
from labs.pipeline import close_windows, replay
from labs.pipeline.generate import classroom

# One window's worth of records; batches 3 to 12 emit a window of 8 results each.
RECORDS_PER_BATCH = 80


@dataclass(frozen=True)
class Classroom:
    topic: str
    expected: dict[tuple[int, str], int]


@pytest.fixture(scope="session")
def classroom_log(broker) -> Classroom:
    from labs.equipment import create_topic

    accesses = list(classroom(windows=12, clients=8))
    topic = create_topic(broker.bootstrap_servers, "classroom_log", partitions=1)
    sent = replay(accesses, broker.bootstrap_servers, topic)
    close_windows(sent.last_time_ms, broker.bootstrap_servers, topic)
    return Classroom(topic, count_by_window(accesses))


@pytest.fixture
def job_options(broker, topic, classroom_log, tmp_path):
    """Return what JobProcess needs to count the classroom log into a fresh topic."""
    results = topic()
    return {
        "bootstrap_servers": broker.bootstrap_servers,
        "source_topic": classroom_log.topic,
        "sink_topic": results,
        "name": results,
        "checkpoint": tmp_path / "checkpoint",
        "records_per_batch": RECORDS_PER_BATCH,
    }
