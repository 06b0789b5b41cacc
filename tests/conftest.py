"""The bench of the tests: one broker and one Spark session for all of them, and a fresh topic for each."""

from __future__ import annotations

import os
import uuid

import pytest

from labs.equipment import Broker, create_topic, spark_session

# The tests stop, kill and fill what they use, so it is never a Kafka or a Spark of somebody else's.
for variable in ("KAFKA_BOOTSTRAP_SERVERS", "SPARK_MASTER"):
    os.environ.pop(variable, None)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items):
    """Keep the tests of a file together, since they share a bench; each lesson goes wherever there is room.

    Lessons and exercises come first: one that took minutes at the very end would have a core to itself.
    """
    items.sort(key=lambda item: not item.path.match("test_notebooks.py") and "exercises" not in item.path.parts)
    for item in items:
        lesson = getattr(item, "callspec", None) and item.callspec.params.get("notebook")
        item.add_marker(pytest.mark.xdist_group(lesson.stem if lesson else str(item.path)))


@pytest.fixture(scope="session")
def broker():
    with Broker() as started:
        yield started


@pytest.fixture
def topic(broker):
    """Make fresh topics: `topic(partitions=1) -> name`."""

    def topic(partitions: int = 1, **settings: str) -> str:
        return create_topic(broker.bootstrap_servers, f"test-{uuid.uuid4().hex}", partitions, **settings)

    return topic


@pytest.fixture(scope="session")
def spark():
    """The lab's session. It belongs to the process, so no test stops it."""
    return spark_session("tests")
