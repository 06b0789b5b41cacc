"""The staircase: the same log and the same crash against one more mechanism each time, audited."""

from __future__ import annotations

import shutil
import tempfile
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from pyspark.sql import SparkSession

from labs.equipment.topics import create_topic
from labs.evidence.audit import Audit, audit
from labs.evidence.reader import read_results
from labs.faults import Attempt, Fault, LostAcknowledgement, Supervisor, armed
from labs.pipeline import ip_count
from labs.pipeline.at_least_once import AtLeastOnceKafkaSink
from labs.pipeline.exactly_once import ExactlyOnceKafkaSink
from labs.pipeline.source import SOURCE_TOPIC


class WithoutMarker(ExactlyOnceKafkaSink):
    """Transactions alone: a batch is visible as a whole or not at all, and nobody remembers which were."""

    def _is_committed(self, *_) -> bool:
        return False


@dataclass(frozen=True)
class Stage:
    """One step of the staircase: a sink, whether a restart finds the checkpoint, and where it starts without."""

    name: str
    sink: Callable[..., Any]
    keeps_checkpoint: bool = True
    restarts_from: str = "earliest"
    options: Mapping[str, Any] = field(default_factory=dict)

    def make_sink(self, topic: str, bootstrap_servers: str):
        if issubclass(self.sink, ExactlyOnceKafkaSink):
            return self.sink(f"sink-of-{topic}", topic, bootstrap_servers=bootstrap_servers, **self.options)
        return self.sink(topic, bootstrap_servers=bootstrap_servers, **self.options)


# The producer waits for company (linger), so that one acknowledgement always covers the same records.
NOT_IDEMPOTENT = {"enable_idempotence": "false", "linger_ms": 100}

AT_MOST_ONCE = Stage("start from latest", AtLeastOnceKafkaSink, False, "latest", NOT_IDEMPOTENT)
NO_CHECKPOINT = Stage("no checkpoint", AtLeastOnceKafkaSink, False, options=NOT_IDEMPOTENT)
CHECKPOINT = Stage("checkpoint", AtLeastOnceKafkaSink, options=NOT_IDEMPOTENT)
IDEMPOTENT = Stage("+ idempotent producer", AtLeastOnceKafkaSink, options={"linger_ms": 100})
TRANSACTIONS = Stage("+ transactions", WithoutMarker)
EXACTLY_ONCE = Stage("+ batch marker", ExactlyOnceKafkaSink)
STAGES = (NO_CHECKPOINT, CHECKPOINT, IDEMPOTENT, TRANSACTIONS, EXACTLY_ONCE)


@dataclass(frozen=True)
class Outcome:
    """What a stage did with its faults: the audit, how often the query ran, and the topic with the results.

    `struck` are those of the faults that found the point where they strike; a stage may not have it.
    """

    stage: str
    faults: tuple[Fault | LostAcknowledgement, ...]
    struck: tuple[Fault | LostAcknowledgement, ...]
    audit: Audit
    attempts: list[Attempt]
    topic: str

    def as_row(self) -> dict[str, Any]:
        """Return {stage, fault, expected, lost, duplicated, verdict} for tables, plots and JSON."""
        return {
            "stage": self.stage,
            "fault": " + ".join(fault.name for fault in self.faults) or None,
            "expected": self.audit.expected,
            "lost": self.audit.lost,
            "duplicated": self.audit.duplicated,
            "verdict": self.audit.verdict.value if self.struck == self.faults else "not reached",
        }


def run_stage(
    stage: Stage,
    spark: SparkSession,
    bootstrap_servers: str,
    expected: Mapping[tuple[int, str], int],
    *faults: Fault | LostAcknowledgement,
    source_topic: str = SOURCE_TOPIC,
    records_per_batch: int | None = None,
) -> Outcome:
    """Run the IP count into a fresh topic, crash it at each fault, restart it until it is done, and audit."""
    topic = create_topic(bootstrap_servers, f"ip_count_sink_{uuid.uuid4().hex[:8]}", partitions=1)
    sink = stage.make_sink(topic, bootstrap_servers)
    directories: list[str] = []

    def attempt(number: int) -> None:
        if not directories or not stage.keeps_checkpoint:
            directories.append(tempfile.mkdtemp(prefix="labs-checkpoint-"))
        starting = "earliest" if number == 1 else stage.restarts_from
        records = ip_count.read_source(spark, bootstrap_servers, source_topic, starting, records_per_batch)
        query = ip_count.start(ip_count.ip_count(records), sink, directories[-1])
        try:
            query.awaitTermination()
        except KeyboardInterrupt:
            query.stop()  # or it would go on
            raise

    try:
        with armed(*faults) as struck:
            attempts = Supervisor(attempt, restarts=len(faults) + 1, delay=0, report=lambda _: None).run()
    finally:
        for directory in directories:
            shutil.rmtree(directory, ignore_errors=True)
    verdict = audit(expected, read_results(bootstrap_servers, topic))
    return Outcome(stage.name, faults, tuple(struck), verdict, attempts, topic)
