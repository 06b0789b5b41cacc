"""Kill a query in Real-Time Mode again and again while records come in, and audit what it published.

Most kills end the worker, which writes, and so the query: it is restarted in the living session. Some end the whole
job, Python and JVM, and leave its workers to notice. Nothing is chosen but the point; the epoch is the next to come by.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import sys
import tempfile
import threading
import uuid
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from confluent_kafka import Producer
from pyspark.sql.streaming import StreamingQuery

from labs.equipment.child_process import ChildProcess
from labs.equipment.eventually import eventually
from labs.equipment.topics import create_topic, end_offsets
from labs.evidence.auditor.audit import Audit, audit
from labs.evidence.readers.results import read_results
from labs.faults.task_fault import TaskFaults
from labs.pipeline.records import source_value
from labs.runs.real_time_job import RealTimeJob

ROOT = Path(__file__).resolve().parents[2]
PARTITIONS = 2
RATE = 100  # records per second
PATIENCE = 60  # seconds for anything to happen


@dataclass(frozen=True)
class KillReport:
    """What came of some kills at one point: how many there were, and the audit of all that was published."""

    point: str
    kills: int
    audit: Audit


class Feed:
    """Sends a record every 10 ms, to each partition in turn, until it is closed; no two are the same."""

    def __init__(self, servers: str, topic: str):
        self.sent: dict[tuple[int, str], int] = {}
        self._producer = Producer({"bootstrap.servers": servers, "enable.idempotence": True, "linger.ms": 0})
        self._topic, self._over = topic, threading.Event()
        self._thread = threading.Thread(target=self._send, name="feed", daemon=True)
        self._thread.start()

    def _send(self) -> None:
        for number in itertools.count(1):
            if self._over.wait(1 / RATE):
                return
            partition = number % PARTITIONS
            ip = f"10.0.0.{partition}"
            self.sent[number, ip] = 1
            self._producer.produce(self._topic, source_value(number, ip), partition=partition)
            self._producer.poll(0)

    def close(self) -> None:
        """Stop, and wait until all that was sent is acknowledged."""
        self._over.set()
        self._thread.join()
        if left := self._producer.flush(PATIENCE):
            raise TimeoutError(f"{left} records of the feed were not acknowledged")


class RealTimeTrial:
    """A source that is fed, a sink's topic and a checkpoint, all fresh, and what is done to the query between them."""

    def __init__(self, servers: str, sink: str = "exactly-once", epoch: int = 1_000):
        name, self._directory = uuid.uuid4().hex[:8], tempfile.TemporaryDirectory(prefix="labs-real-time-")
        source = create_topic(servers, f"in-{name}", PARTITIONS)
        topic = create_topic(servers, f"out-{name}", PARTITIONS)
        faults = Path(self._directory.name, "faults")
        faults.mkdir()
        checkpoint = str(Path(self._directory.name, "checkpoint"))
        self.job = RealTimeJob(servers, source, topic, checkpoint, str(faults), sink, epoch)
        self.faults = TaskFaults(str(faults))
        self.feed = Feed(servers, source)
        self.kills = 0

    def start(self) -> StreamingQuery:
        """Start the query, or start it again, in this process's session."""
        return self.job.start()

    def kill_worker(self, point: str) -> None:
        """Let the next epoch's first task at `point` be killed there; its query fails with it."""
        query = self.start()
        with self.faults.armed(point, run=str(query.runId)) as struck:
            try:
                eventually(lambda: (struck.exists() and not query.isActive) or _failed(query, struck), PATIENCE)
            finally:
                query.stop()
        self.kills += 1

    def kill_job(self, point: str) -> None:
        """Run the query as a job of its own until it is killed at `point`."""
        with self.faults.armed(point, "job", first_epoch=1) as struck, self.job_process() as job:
            eventually(lambda: struck.exists() or _over(job), PATIENCE)
            eventually(lambda: job.exit_code is not None, PATIENCE)
        self.kills += 1

    @contextlib.contextmanager
    def job_process(self) -> Iterator[ChildProcess]:
        """Run the query as a job of its own, and kill it in the end."""
        command = [sys.executable, "-m", "labs.runs.real_time_job", json.dumps(asdict(self.job))]
        environment = {**os.environ, "PYTHONPATH": str(ROOT)}
        log = Path(self._directory.name, "job.log")
        job = ChildProcess(command, log, env=environment, cwd=self._directory.name)
        try:
            yield job
        finally:
            job.kill()

    def audited(self, query: StreamingQuery | None = None) -> Audit:
        """End the feed, let the query come to the source's end, and judge what it published."""
        self.feed.close()
        query = query or self.start()
        ends = end_offsets(self.job.servers, self.job.source)
        try:
            eventually(lambda: _read_to(query, self.job.source, ends) or _failed(query), PATIENCE)
        finally:
            query.stop()
        return audit(self.feed.sent, read_results(self.job.servers, self.job.topic))

    def close(self) -> None:
        self.feed.close()
        self._directory.cleanup()

    def __enter__(self) -> RealTimeTrial:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def kill_at(servers: str, point: str, kills: int, of_jobs: int = 0) -> KillReport:
    """Kill the worker so often at `point`, and besides the whole job `of_jobs` times; then audit."""
    with RealTimeTrial(servers) as trial:
        for _ in range(kills):
            trial.kill_worker(point)
        for _ in range(of_jobs):
            trial.kill_job(point)
        return KillReport(point, trial.kills, trial.audited())


def _failed(query: StreamingQuery, struck: Path | None = None) -> bool:
    """Raise what a query failed of that nobody struck."""
    if not query.isActive and not (struck and struck.exists()):
        query.awaitTermination()  # raises
        raise RuntimeError("the query ended by itself, which it never should")
    return False


def _over(job: ChildProcess) -> bool:
    if job.exit_code is not None:
        raise RuntimeError(f"the job ended by itself: {job.output()[-2000:]}")
    return False


def _read_to(query: StreamingQuery, source: str, ends: dict[int, int]) -> bool:
    """Tell whether the query has noted in its checkpoint that it read the source to these ends."""
    progress = query.lastProgress
    if not progress:
        return False
    at = json.loads(progress.sources[0].endOffset)[source]
    return {int(partition): offset for partition, offset in at.items()} == ends
