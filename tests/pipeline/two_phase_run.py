"""A run that publishes one batch of results by two-phase commit, and can be told where to die.

As a process: python -m tests.pipeline.two_phase_run SPEC, where SPEC is the JSON of a `Run`.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import uuid
from dataclasses import asdict, dataclass
from pathlib import Path

from exactly_once_kafka.points import Points, pass_by
from labs.pipeline.two_phase.coordinator import DecisionLog, recover
from labs.pipeline.two_phase.end_transaction import finish
from labs.pipeline.two_phase.prepared import PreparedTransaction, PreparingProducer

ROOT = Path(__file__).parents[2]
PARTICIPANTS, ROWS_EACH = 2, 5
# The points at which a run can die, in order. Each is called with the number of the decision.
POINTS = (
    "after_prepare",  # the records of the first transaction are in Kafka; nobody has been told
    "before_decision",  # everything is prepared
    "mid_decision",  # half of the record is written, under a temporary name
    "after_decision",  # decided; nothing is finished
    "between_ends",  # the first transaction is finished, the next is not
    "after_ends",  # all are finished; the decision is still in the log
)


@dataclass(frozen=True)
class Run:
    bootstrap_servers: str
    topic: str
    prefix: str
    directory: str
    commit: bool = True
    timeout_ms: int = 60_000

    @property
    def decisions(self) -> DecisionLog:
        return DecisionLog(self.directory)

    @property
    def expected(self) -> dict[tuple[int, str], int]:
        return {(0, f"10.0.{p}.{n}"): n + 1 for p in range(PARTICIPANTS) for n in range(ROWS_EACH)}

    def prepare(self, number: int = 1, points: Points = pass_by) -> list[PreparedTransaction]:
        """Write half of the results in each of two transactions."""
        attempt, total, prepared = uuid.uuid4().hex[:8], len(self.expected), []
        headers = {"batch_id": number, "attempt": attempt, "batch_rows": total}
        for participant in range(PARTICIPANTS):
            with PreparingProducer(
                f"{self.prefix}-{participant}",
                bootstrap_servers=self.bootstrap_servers,
                transaction_timeout_ms=self.timeout_ms,
            ) as producer:
                for (window, ip), count in self.expected.items():
                    if ip.startswith(f"10.0.{participant}."):
                        value = json.dumps({"window_start": window, "ip": ip, "count": count}).encode()
                        producer.send(self.topic, value, headers=[(k, str(v).encode()) for k, v in headers.items()])
                prepared.append(producer.prepare())
            points("after_prepare", number)
        return prepared

    def publish(self, number: int = 1, points: Points = pass_by) -> None:
        """Take the three steps of `labs.pipeline.two_phase.coordinator`."""
        prepared = self.prepare(number, points)
        points("before_decision", number)
        decision = self.decisions.record(number, self.commit, prepared, points)
        points("after_decision", number)
        for count, transaction in enumerate(decision.transactions):
            if count:
                points("between_ends", number)
            finish(transaction, self.commit, self.bootstrap_servers)
        points("after_ends", number)
        self.decisions.forget(decision)

    def recover(self):
        return recover(self.decisions, self.bootstrap_servers, self.prefix)

    def publish_and_die_at(self, point: str) -> None:
        """Publish in a process of its own, which is killed when it reaches `point`."""
        spec = json.dumps({**asdict(self), "point": point})
        ended = subprocess.run(
            [sys.executable, "-m", "tests.pipeline.two_phase_run", spec],
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            capture_output=True,
            text=True,
            timeout=120,
        )
        assert ended.returncode == -signal.SIGKILL, ended.stderr


def die_at(point: str) -> Points:
    def reach(reached: str, number: int) -> None:
        if reached == point:
            os.kill(os.getpid(), signal.SIGKILL)

    return reach


if __name__ == "__main__":
    spec = json.loads(sys.argv[1])
    points = die_at(spec.pop("point"))
    Run(**spec).publish(points=points)
