"""What the tests of the sinks outside of Kafka share: a query to crash, and a process to kill."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from exactly_once_kafka.points import AFTER_COMMIT, FAULT_POINTS
from exactly_once_kafka.protocol import exactly_once
from labs.faults.fault_points import Fault
from labs.faults.supervisor import Supervisor
from labs.pipeline.query import ip_count
from tests.conftest import RECORDS_PER_BATCH
from tests.sink.crashes import points_of, steps_of

ROOT = Path(__file__).parents[2]
POINTS = points_of(steps_of(exactly_once, has_epoch=True, published=False))  # of a batch that is written
# Those of the lessons are passed in `make test`, all others beside the long tests.
POINTS_OF_A_WRITE = [
    point if point in FAULT_POINTS else pytest.param(point, marks=[pytest.mark.long, pytest.mark.soak])
    for point in POINTS
]


def is_published_before(point):
    """Tell whether a process that is killed at that point has published its batch."""
    return POINTS.index(point) >= POINTS.index(AFTER_COMMIT)


def run(spark, broker, classroom_log, sink, checkpoint, records_per_batch=RECORDS_PER_BATCH):
    """Run the IP count through a sink until the source's end."""
    records = ip_count.read_source(
        spark, broker.bootstrap_servers, classroom_log.topic, records_per_batch=records_per_batch
    )
    ip_count.start_query(ip_count.count_ips(records), sink, checkpoint).awaitTermination()


def run_and_crash_at_every_point(attempt, points, *more):
    """Call `attempt` until it gets through, crashing it at each fault point once, in batches 3 to 7."""
    faults = [Fault(point, batch) for batch, point in enumerate(FAULT_POINTS, start=3)] + list(more)
    with points.armed(*faults) as struck:
        Supervisor(lambda _: attempt(), restarts=len(faults), delay=0, report=lambda _: None).run()
    assert struck == faults


def roll_back(checkpoint, batches):
    """Make the checkpoint one of earlier: without its last batches."""
    last = max(int(file.name) for file in (checkpoint / "commits").iterdir() if file.name.isdigit())
    for batch in range(last - batches + 1, last + 1):
        for log in ("offsets", "commits"):
            (checkpoint / log / str(batch)).unlink()
            (checkpoint / log / f".{batch}.crc").unlink(missing_ok=True)


def forget_batch_one(checkpoint):
    """Make the checkpoint of a query that crashed in batch 2 one from before batch 1."""
    for entry in ("offsets/2", "offsets/1", "commits/1"):
        (checkpoint / entry).unlink()
        (checkpoint / entry).with_name(f".{entry[-1]}.crc").unlink()


def damage_checkpoint(checkpoint, damage):
    """Damage a checkpoint in this way, and return what a sink finds then."""
    if damage == "checkpoint deleted":
        shutil.rmtree(checkpoint)
        return "another query"
    if damage == "rolled back one":
        forget_batch_one(checkpoint)
        return "another batch 1"
    roll_back(checkpoint, batches=2)
    return "the last batch committed is"


def expected(*versions):
    """The results of batches 0, 1, … in these versions."""
    return {(batch, f"10.0.0.{n}"): count for batch, count in enumerate(versions) for n in range(3)}


def write_in_a_process_killed_at(point, kind, place):
    """Write version 1 of batch 1 in a process of its own, which is killed at the point."""
    ended = subprocess.run(
        [sys.executable, "-m", "tests.pipeline.sink_process", kind, str(place), point],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert ended.returncode == -signal.SIGKILL, ended.stderr
