"""Kill a query in Real-Time Mode at every point of its sink, and Spark's own sink anywhere, and audit both.

`python -m labs.runs.real_time --kills 30` takes a quarter of an hour: one line of JSON for each point as it is known.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from exactly_once_kafka.real_time.points import REAL_TIME_POINTS
from exactly_once_kafka.real_time.sink import RealTimeKafkaSink
from labs.equipment.broker import Broker
from labs.evidence.auditor.audit import Audit
from labs.runs.real_time_trial import RealTimeTrial

CONTROL = "Spark's own sink, anywhere"
EPOCH = 500  # milliseconds: the shorter, the more kills
EPOCH_OF_CONTROL = 3_000  # milliseconds: long enough to be struck in its middle


@dataclass(frozen=True)
class KillReport:
    """What came of some kills at one point: of workers, of whole jobs, and the audit of all that was published."""

    point: str
    workers: int
    jobs: int
    audit: Audit

    @property
    def as_expected(self) -> bool:
        """Whether nothing was lost or doubled; of the control, whether something was doubled."""
        return self.audit.duplicated > 0 and not self.audit.lost if self.point == CONTROL else self.audit.valid


def kill_at(
    servers: str, point: str, workers: int, jobs: int = 0, kind: type[RealTimeKafkaSink] = RealTimeKafkaSink
) -> KillReport:
    """Kill so many workers at `point`, one after the other, then so many whole jobs; then audit."""
    with RealTimeTrial(servers, epoch=EPOCH, kind=kind) as trial:
        for _ in range(workers):
            trial.kill_worker(point)
        for _ in range(jobs):
            trial.kill_job(point)
        return KillReport(point, workers, jobs, trial.audited())


def kill_control(servers: str, jobs: int = 1) -> KillReport:
    """Kill so many jobs that publish through Spark's own sink; then audit."""
    with RealTimeTrial(servers, sink="spark", epoch=EPOCH_OF_CONTROL) as trial:
        for _ in range(jobs):
            trial.kill_job_anywhere()
        return KillReport(CONTROL, 0, jobs, trial.audited())


def kill_all(servers: str, kills: int, jobs: int, points: Sequence[str] = REAL_TIME_POINTS) -> Iterator[KillReport]:
    """Yield a report for each point, of `kills` kills, `jobs` of them of whole jobs; at last that of the control."""
    for point in points:
        yield kill_at(servers, point, kills - jobs, jobs)
    yield kill_control(servers, jobs)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m labs.runs.real_time", description=__doc__)
    parser.add_argument("--kills", type=int, default=30, help="at each point (default: %(default)s)")
    parser.add_argument("--jobs", type=int, default=2, help="of these, how many kill the whole job")
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
