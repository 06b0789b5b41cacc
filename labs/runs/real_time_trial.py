"""A query in Real-Time Mode on a source that is fed, to be killed again and again; and the audit of what it published.

Most kills end the worker, which writes, and so the query: it is restarted in the living session. Some end the whole
job, Python and JVM, and leave its workers to notice. Nothing is chosen but the point; the epoch is the next to come by.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sys
import tempfile
import uuid
from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path

from pyspark.sql.streaming import StreamingQuery

from exactly_once_kafka.real_time.sink import RealTimeKafkaSink
from labs.equipment.child_environment import for_python
from labs.equipment.child_process import ChildProcess
from labs.equipment.eventually import eventually
from labs.equipment.topics import create_topic, end_offsets
from labs.evidence.auditor.audit import Audit, audit
from labs.evidence.readers.results import read_results
from labs.faults.task_fault import TaskFaults
from labs.runs.real_time_feed import PARTITIONS, Feed
from labs.runs.real_time_job import RealTimeJob
from labs.runs.real_time_progress import failed, over, read_to

PATIENCE = 150  # seconds for anything to happen: a restart may have to wait for a transaction to time out


class RealTimeTrial:
    """A source that is fed, a sink's topic and a checkpoint, all fresh, and what is done to the query between them."""

    def __init__(
        self,
        servers: str,
        sink: str = "exactly-once",
        epoch: int = 1_000,
        kind: type[RealTimeKafkaSink] = RealTimeKafkaSink,
    ):
        name, self._directory = uuid.uuid4().hex[:8], tempfile.TemporaryDirectory(prefix="labs-real-time-")
        source = create_topic(servers, f"in-{name}", PARTITIONS)
        topic = create_topic(servers, f"out-{name}", PARTITIONS)
        faults = Path(self._directory.name, "faults")
        faults.mkdir()
        checkpoint = str(Path(self._directory.name, "checkpoint"))
        self.job = RealTimeJob(servers, source, topic, checkpoint, str(faults), sink, epoch)
        self.faults = TaskFaults(str(faults))
        self.feed = Feed(servers, source)
        self._kind = kind

    def start(self) -> StreamingQuery:
        """Start the query, or start it again, in this process's session."""
        return self.job.start(self._kind)

    def kill_worker(self, point: str) -> None:
        """Let the next epoch's first task at `point` be killed there; its query fails with it."""
        query = self.start()
        with self.faults.armed(point, run=str(query.runId)) as struck:
            try:
                eventually(lambda: (struck.exists() and not query.isActive) or failed(query, struck), PATIENCE)
            finally:
                query.stop()

    @contextlib.contextmanager
    def frozen_job(self, point: str) -> Iterator[Callable[[], None]]:
        """Run the query as a job until it freezes at `point`, worker and all; yields what lets it go on, to its end."""
        with self.faults.armed(point, "freeze", first_epoch=1) as struck, self.job_process() as job:
            eventually(lambda: (struck.exists() and job.paused) or over(job), PATIENCE)

            def go_on() -> None:
                job.resume()
                os.killpg(os.getpgid(self.faults.process(point)), signal.SIGCONT)
                eventually(lambda: job.exit_code is not None, PATIENCE)

            yield go_on

    def kill_job_anywhere(self) -> None:
        """Run the query as a job of its own, and kill it in the middle of an epoch whose first rows are published."""
        with self.job_process() as job:
            known = self.epochs_done()
            eventually(lambda: self.epochs_done() > known or over(job), PATIENCE)
            end = self._published()
            eventually(lambda: self._published() > end + 10, PATIENCE)
            job.kill()

    def epochs_done(self) -> int:
        """Return how many epochs Spark has in its commit log, of those that it still keeps."""
        commits = Path(self.job.checkpoint, "commits")
        return max((int(each.name) + 1 for each in commits.glob("[0-9]*")), default=0)

    def _published(self) -> int:
        return sum(end_offsets(self.job.servers, self.job.topic).values())

    def kill_job(self, point: str) -> None:
        """Run the query as a job of its own until it is killed at `point`."""
        with self.faults.armed(point, "job", first_epoch=1) as struck, self.job_process() as job:
            eventually(lambda: struck.exists() or over(job), PATIENCE)
            eventually(lambda: job.exit_code is not None, PATIENCE)

    @contextlib.contextmanager
    def job_process(self, **environment: str) -> Iterator[ChildProcess]:
        """Run the query as a job of its own, and kill it in the end. `environment` adds variables."""
        command = [sys.executable, "-m", "labs.runs.real_time_job", json.dumps(asdict(self.job))]
        log = Path(self._directory.name, "job.log")
        variables = {**for_python(TMPDIR=self._directory.name), **environment}
        job = ChildProcess(command, log, env=variables, cwd=self._directory.name)
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
            eventually(lambda: read_to(query, self.job.source, ends) or failed(query), PATIENCE)
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
