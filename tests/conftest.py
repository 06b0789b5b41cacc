"""The bench of the tests: one broker and one Spark session for all of them, a log to count, a fresh topic for each.

The log is a classroom's: 12 windows of 8 clients, 10 requests each, so that every count is 10.
"""

from __future__ import annotations

import os
import signal
import threading
import uuid
import zlib
from collections import defaultdict
from dataclasses import dataclass
from typing import Any

import pytest

from labs.equipment.broker import Broker
from labs.equipment.spark import spark_session
from labs.equipment.topics import create_topic
from labs.evidence.auditor.expected import count_by_window
from labs.pipeline.log.generate import classroom
from labs.pipeline.log.replay import close_windows, replay
from tests.browser import _one_browser, browser, jupyterlab  # noqa: F401  fixtures

# One window's worth of records; batches 3 to 12 emit a window of 8 results each.
RECORDS_PER_BATCH = 80

# Files of which one test takes minutes.
LONG = (
    "test_outgrowing_page.py",
    "test_three_brokers.py",
    "test_notebooks.py",
    "test_changes.py",
    "test_run_again.py",
    "test_interrupted.py",
    "test_chaos.py",
    "test_on_a_cluster.py",
    "test_executors_on_a_cluster.py",
    "test_executors_on_three_brokers.py",
    "test_executors.py",
    "test_network.py",
    "test_real_time.py",
    "test_crashes.py",
    "test_secured.py",
    "test_job.py",
    "test_by_hand.py",
    "test_room.py",
)

# Fixtures that start something. A test that uses one is marked bench (`make test`) or long (`make test-all`).
STARTED = {"broker", "spark", "postgres", "kafka", "browser", "jupyterlab", "room", "installed"}

# Parameters each of which is a lesson, with a bench of its own.
OF_A_LESSON = ("notebook", "lesson_path", "change")

# The tests stop, kill and fill what they use, so it is never a Kafka or a Spark of somebody else's.
for variable in ("KAFKA_BOOTSTRAP_SERVERS", "SPARK_MASTER"):
    os.environ.pop(variable, None)

# A script starts what it sends to the background deaf to Ctrl-C, and what the tests start would inherit that.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN and threading.current_thread() is threading.main_thread():
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_make_parametrize_id(val, argname):
    """Name bytes by their parameter: packed ones hold the time, and the workers must agree on each test's name."""
    return argname if isinstance(val, bytes) else None


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items):
    """Keep the tests of a file together, since they share a bench; each lesson goes wherever there is room.

    What takes minutes comes first: at the very end it would have a core to itself.
    """
    items.sort(key=lambda item: item.path.name not in LONG and "exercises" not in item.path.parts)
    for item in items:
        parameters = item.callspec.params if hasattr(item, "callspec") else {}
        alone = next((parameters[name] for name in OF_A_LESSON if name in parameters), None)
        if not item.get_closest_marker("xdist_group"):
            item.add_marker(pytest.mark.xdist_group(str(alone or item.location[0])))
    leave_to_soak(items)
    if beside := [item.nodeid for item in items if item.get_closest_marker("soak") and not is_long(item)]:
        raise pytest.UsageError("these are marked soak, and are to be marked long as well:\n" + "\n".join(beside))
    unmarked = [
        item.nodeid
        for item in items
        if STARTED & set(item.fixturenames) and not (item.get_closest_marker("bench") or is_long(item))
    ]
    if unmarked:
        raise pytest.UsageError("these start something, and are to be marked bench or long:\n" + "\n".join(unmarked))


def is_long(item):
    return item.get_closest_marker("long") is not None


def leave_to_soak(items):
    """Of a long test with several sets of parameters, mark all but one as soak; test_notebooks runs each lesson.

    Which one is kept depends on the test's name, so that all kinds of sinks and writers are among those that are.
    """
    variants = defaultdict(list)
    for item in items:
        if item.get_closest_marker("soak"):  # by its own mark
            continue
        if is_long(item) and hasattr(item, "callspec") and "notebook" not in item.callspec.params:
            variants[item.nodeid.partition("[")[0]].append(item)
    for name, several in variants.items():
        kept = zlib.crc32(name.encode()) % len(several)
        for item in several[:kept] + several[kept + 1 :]:
            item.add_marker(pytest.mark.soak)


@pytest.fixture(scope="session")
def broker():
    with Broker() as started:
        yield started


@pytest.fixture
def topic(broker):
    """Make fresh topics: `topic(partitions=1) -> name`."""

    def topic(partitions: int = 1, **options: Any) -> str:
        return create_topic(broker.bootstrap_servers, f"test-{uuid.uuid4().hex}", partitions, **options)

    return topic


@pytest.fixture(scope="session")
def spark():
    """The lab's session. It belongs to the process, so no test stops it."""
    return spark_session("tests")


@pytest.fixture
def publish_rows(spark, tmp_path):
    """Hand rows to a sink as batch 0 of a query: `publish_rows(sink, rows)`. Raises StreamingQueryException."""

    def publish(sink, rows):
        (source := tmp_path / "one-line").mkdir(exist_ok=True)
        (source / "line").write_text("a batch\n")
        stream = spark.readStream.text(str(source)).writeStream.trigger(availableNow=True)
        stream.foreachBatch(lambda _, batch_id: sink(rows, batch_id)).start().awaitTermination()

    return publish


@dataclass(frozen=True)
class Classroom:
    topic: str
    expected: dict[tuple[int, str], int]


@pytest.fixture(scope="session")
def classroom_log(broker) -> Classroom:
    """Return a source topic that holds the log, and what there is to count in it."""
    accesses = list(classroom(windows=12, clients=8))
    topic = create_topic(broker.bootstrap_servers, "classroom_log", partitions=1)
    sent = replay(accesses, broker.bootstrap_servers, topic)
    close_windows(sent.last_time_ms, broker.bootstrap_servers, topic)
    return Classroom(topic, count_by_window(accesses))


@pytest.fixture
def job_options(broker, topic, classroom_log, tmp_path):
    """Return what JobProcess needs to count the log into a fresh topic."""
    results = topic()
    return {
        "bootstrap_servers": broker.bootstrap_servers,
        "source_topic": classroom_log.topic,
        "sink_topic": results,
        "name": results,
        "checkpoint": tmp_path / "check point",
        "records_per_batch": RECORDS_PER_BATCH,
    }
