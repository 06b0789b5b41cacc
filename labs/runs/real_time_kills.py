"""Kill a query in Real-Time Mode at every point of its sink, and Spark's own sink anywhere, and audit both.

`python -m labs.runs.real_time_kills --kills 30` takes a quarter of an hour; one line of JSON for each point.

The source gets records that are all different, at a steady rate. Most kills end the Python worker, which writes the
rows. The query then fails, and is restarted in the same session. Some kills end the whole job, Python and JVM, while
its workers still run. Only the point is chosen; the kill strikes in the next epoch that reaches it.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import json
import os
import signal
import sys
import tempfile
import threading
import uuid
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from confluent_kafka import Producer
from pyspark.sql.streaming import StreamingQuery

from labs.equipment.broker import Broker
from labs.equipment.child_process import ChildProcess, for_python
from labs.equipment.topics import create_topic, end_offsets
from labs.equipment.waiting import eventually
from labs.evidence.auditor.audit import Audit, audit
from labs.evidence.readers.results import read_results
from labs.faults.fault_points import TaskFaults
from labs.pipeline.records import source_value
from labs.pipeline.sinks.real_time_sink import REAL_TIME_POINTS, Rule, by_place
from labs.runs.real_time_job import RealTimeJob

PARTITIONS = 2
RATE = 100  # records per second
FLUSH = 60  # seconds for the last acknowledgement


class Feed:
    """Sends a record every 10 ms, to each partition in turn, until `close`; no two records are equal."""

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
        """Stop, and wait until all records are acknowledged. Raises TimeoutError."""
        self._over.set()
        self._thread.join()
        if left := self._producer.flush(FLUSH):
            raise TimeoutError(f"{left} records of the feed were not acknowledged")


def failed(query: StreamingQuery, struck: Path | None = None) -> bool:
    """Return False. Raises the error of a query that has failed although no kill has struck it."""
    if not query.isActive and not (struck and struck.exists()):
        query.awaitTermination()  # raises
        raise RuntimeError("the query ended by itself and without an error; expected it to run until it is stopped")
    return False


def over(job: ChildProcess) -> bool:
    """Return False. Raises RuntimeError with the output of a job that has ended without a kill."""
    if job.exit_code is not None:
        raise RuntimeError(f"the job ended by itself: {job.output()[-2000:]}")
    return False


def read_to(query: StreamingQuery, source: str, ends: dict[int, int]) -> bool:
    """Tell whether the query has noted in its checkpoint that it read the source to these ends."""
    progress = query.lastProgress
    if not progress:
        return False
    at = json.loads(progress.sources[0].endOffset)[source]
    return {int(partition): offset for partition, offset in at.items()} == ends


PATIENCE = 150  # seconds to wait for an event: a restart may have to wait until a transaction times out


class RealTimeTrial:
    """A fresh source with its feed, a fresh sink topic and checkpoint, and the ways to kill the query between them."""

    def __init__(self, servers: str, sink: str = "exactly-once", epoch: int = 1_000, published: Rule = by_place):
        name, self._directory = uuid.uuid4().hex[:8], tempfile.TemporaryDirectory(prefix="labs-real-time-")
        source = create_topic(servers, f"in-{name}", PARTITIONS)
        topic = create_topic(servers, f"out-{name}", PARTITIONS)
        faults = Path(self._directory.name, "faults")
        faults.mkdir()
        checkpoint = str(Path(self._directory.name, "checkpoint"))
        self.job = RealTimeJob(servers, source, topic, checkpoint, str(faults), sink, epoch)
        self.faults = TaskFaults(str(faults))
        self.feed = Feed(servers, source)
        self._rule = published

    def start(self) -> StreamingQuery:
        """Start the query, or start it again, in this process's session."""
        return self.job.start(self._rule)

    def kill_worker(self, point: str) -> None:
        """Kill the first task that reaches `point`, in the next epoch; its query fails with it."""
        query = self.start()
        with self.faults.armed(point, run=str(query.runId)) as struck:
            try:
                eventually(lambda: (struck.exists() and not query.isActive) or failed(query, struck), PATIENCE)
            finally:
                query.stop()

    @contextlib.contextmanager
    def frozen_job(self, point: str) -> Iterator[Callable[[], None]]:
        """Run the query as a job until it freezes at `point`, with its worker; yield a function that wakes both."""
        with self.faults.armed(point, "freeze", first_epoch=1) as struck, self.job_process() as job:
            eventually(lambda: (struck.exists() and job.paused) or over(job), PATIENCE)

            def go_on() -> None:
                job.resume()
                os.killpg(os.getpgid(self.faults.process(point)), signal.SIGCONT)
                eventually(lambda: job.exit_code is not None, PATIENCE)

            yield go_on

    def kill_job_anywhere(self) -> None:
        """Run the query as a separate process, and kill it in an epoch whose first rows are published."""
        with self.job_process() as job:
            known = self.epochs_done()
            eventually(lambda: self.epochs_done() > known or over(job), PATIENCE)
            end = self._published()
            eventually(lambda: self._published() > end + 10, PATIENCE)
            job.kill()

    def epochs_done(self) -> int:
        """Return the number of epochs by the newest entry in Spark's commit log."""
        commits = Path(self.job.checkpoint, "commits")
        return max((int(each.name) + 1 for each in commits.glob("[0-9]*")), default=0)

    def _published(self) -> int:
        return sum(end_offsets(self.job.servers, self.job.topic).values())

    def kill_job(self, point: str) -> None:
        """Run the query as a separate process until it is killed at `point`."""
        with self.faults.armed(point, "job", first_epoch=1) as struck, self.job_process() as job:
            eventually(lambda: struck.exists() or over(job), PATIENCE)
            eventually(lambda: job.exit_code is not None, PATIENCE)

    @contextlib.contextmanager
    def job_process(self, **environment: str) -> Iterator[ChildProcess]:
        """Run the query as a separate process, and kill it at the end. `environment` adds variables."""
        command = [sys.executable, "-m", "labs.runs.real_time_job", json.dumps(asdict(self.job))]
        log = Path(self._directory.name, "job.log")
        variables = {**for_python(TMPDIR=self._directory.name), **environment}
        job = ChildProcess(command, log, env=variables, cwd=self._directory.name)
        try:
            yield job
        finally:
            job.kill()

    def audited(self, query: StreamingQuery | None = None) -> Audit:
        """Stop the feed, let the query read to the source's end, and audit what it published."""
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


CONTROL = "Spark's own sink, anywhere"
EPOCH = 500  # milliseconds: the shorter, the more kills
EPOCH_OF_CONTROL = 3_000  # milliseconds: long enough for a kill in its middle


@dataclass(frozen=True)
class KillReport:
    """The kills at one point, of workers and of whole jobs, and the audit of what was published."""

    point: str
    workers: int
    jobs: int
    audit: Audit

    @property
    def as_expected(self) -> bool:
        """Whether nothing was lost or duplicated; for the control, whether rows were duplicated and none lost."""
        return self.audit.duplicated > 0 and not self.audit.lost if self.point == CONTROL else self.audit.valid


def kill_at(servers: str, point: str, workers: int, jobs: int = 0, published: Rule = by_place) -> KillReport:
    """Kill so many workers at `point`, one after the other, then so many whole jobs; then audit.

    `published` is the rule for rows of an earlier attempt; whole jobs use the sink's own rule.
    """
    with RealTimeTrial(servers, epoch=EPOCH, published=published) as trial:
        for _ in range(workers):
            trial.kill_worker(point)
        for _ in range(jobs):
            trial.kill_job(point)
        return KillReport(point, workers, jobs, trial.audited())


def kill_control(servers: str, jobs: int = 1) -> KillReport:
    """Kill so many jobs that write through Spark's own sink; then audit."""
    with RealTimeTrial(servers, sink="spark", epoch=EPOCH_OF_CONTROL) as trial:
        for _ in range(jobs):
            trial.kill_job_anywhere()
        return KillReport(CONTROL, 0, jobs, trial.audited())


def kill_all(servers: str, kills: int, jobs: int, points: Sequence[str] = REAL_TIME_POINTS) -> Iterator[KillReport]:
    """Yield a report for each point, with `kills` kills (`jobs` of them of whole jobs), then one of the control."""
    for point in points:
        yield kill_at(servers, point, kills - jobs, jobs)
    yield kill_control(servers, jobs)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m labs.runs.real_time_kills", description=__doc__)
    parser.add_argument("--kills", type=int, default=30, help="at each point (default: %(default)s)")
    parser.add_argument(
        "--jobs", type=int, default=2, help="how many of these kill the whole job (default: %(default)s)"
    )
    parser.add_argument("--points", nargs="+", choices=REAL_TIME_POINTS, default=REAL_TIME_POINTS, metavar="POINT")
    arguments = parser.parse_args()
    good = True
    with Broker() as broker:
        for report in kill_all(broker.bootstrap_servers, arguments.kills, arguments.jobs, arguments.points):
            good &= report.as_expected
            line = {"point": report.point, "workers": report.workers, "jobs": report.jobs}
            line |= {"expected": report.audit.expected, "lost": report.audit.lost}
            line |= {"duplicated": report.audit.duplicated, "verdict": str(report.audit.verdict)}
            print(json.dumps(line), flush=True)
    return 0 if good else 1


if __name__ == "__main__":
    raise SystemExit(main())
