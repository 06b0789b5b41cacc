"""The staircase: the same log and the same crash, each time with one more mechanism, and an audit."""

from __future__ import annotations

import shutil
import tempfile
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from pyspark.sql import SparkSession

from exactly_once_kafka.points import Points
from exactly_once_kafka.sink import ExactlyOnceKafkaSink
from labs.equipment.topics import create_topic
from labs.evidence.auditor.audit import Audit, audit
from labs.evidence.readers.results import read_results
from labs.faults.fault_points import Armable, Fault, FaultPoints
from labs.faults.proxy import LostAcknowledgement
from labs.faults.supervisor import Attempt, GaveUp, Supervisor
from labs.pipeline.broken_protocols import marker_ignored
from labs.pipeline.query import ip_count
from labs.pipeline.records import SOURCE_TOPIC
from labs.pipeline.sinks.at_least_once import AtLeastOnceKafkaSink


class WithoutMarker(ExactlyOnceKafkaSink):
    """Transactions alone: a batch is visible as a whole or not at all, but a restart ignores the marker."""

    protocol = staticmethod(marker_ignored)


class AnyStage(Protocol):
    """An object that `run_stage` can run: it makes a foreachBatch function, and says what a restart finds."""

    @property
    def name(self) -> str: ...

    @property
    def keeps_checkpoint(self) -> bool: ...

    @property
    def restarts_from(self) -> str: ...

    def make_sink(self, topic: str, bootstrap_servers: str, points: Points) -> Any: ...


@dataclass(frozen=True)
class Stage:
    """One step of the staircase: a sink, whether a restart keeps the checkpoint, and where it starts without one."""

    name: str
    sink: type[AtLeastOnceKafkaSink] | type[ExactlyOnceKafkaSink]
    keeps_checkpoint: bool = True
    restarts_from: str = "earliest"
    options: Mapping[str, Any] = field(default_factory=dict)

    def make_sink(
        self, topic: str, bootstrap_servers: str, points: Points
    ) -> AtLeastOnceKafkaSink | ExactlyOnceKafkaSink:
        options = {"bootstrap_servers": bootstrap_servers, "points": points, **self.options}
        if issubclass(self.sink, ExactlyOnceKafkaSink):
            return self.sink(f"sink-of-{topic}", topic, writers="driver", **options)
        return self.sink(topic, **options)


# With linger, the producer sends the same records together each time, so that one acknowledgement covers them.
IN_HALVES = {"halves": True, "linger_ms": 100}
NOT_IDEMPOTENT = {"enable_idempotence": "false", **IN_HALVES}

AT_MOST_ONCE = Stage("start from latest", AtLeastOnceKafkaSink, False, "latest", NOT_IDEMPOTENT)
NO_CHECKPOINT = Stage("no checkpoint", AtLeastOnceKafkaSink, False, options=NOT_IDEMPOTENT)
CHECKPOINT = Stage("checkpoint", AtLeastOnceKafkaSink, options=NOT_IDEMPOTENT)
IDEMPOTENT = Stage("+ idempotent producer", AtLeastOnceKafkaSink, options=IN_HALVES)
TRANSACTIONS = Stage("+ transactions", WithoutMarker)
EXACTLY_ONCE = Stage("+ batch marker", ExactlyOnceKafkaSink)
STAGES = (NO_CHECKPOINT, CHECKPOINT, IDEMPOTENT, TRANSACTIONS, EXACTLY_ONCE)


@dataclass(frozen=True)
class Outcome:
    """The outcome of a stage with its faults: the audit, the attempts to run the query, and the topic with the results.

    `struck` are the faults whose point was reached; not every stage has every point. A run that gave up is not
    `finished`: missing results may only be late.
    """

    stage: str
    faults: tuple[Fault | LostAcknowledgement, ...]
    struck: tuple[Armable, ...]
    audit: Audit
    attempts: list[Attempt]
    topic: str

    @property
    def finished(self) -> bool:
        return self.attempts[-1].error is None

    def as_row(self) -> dict[str, Any]:
        """Return {stage, fault, expected, lost, duplicated, verdict} for tables, plots and JSON."""
        return {
            "stage": self.stage,
            "fault": " + ".join(fault.name for fault in self.faults) or None,
            "expected": self.audit.expected,
            "lost": self.audit.lost,
            "duplicated": self.audit.duplicated,
            "verdict": self.audit.verdict.value
            if all(fault in self.struck for fault in self.faults)
            else "not reached",
        }


def run_stage(
    stage: AnyStage,
    spark: SparkSession,
    bootstrap_servers: str,
    expected: Mapping[tuple[int, str], int],
    *faults: Fault | LostAcknowledgement,
    source_topic: str = SOURCE_TOPIC,
    records_per_batch: int | None = None,
    may_give_up: bool = False,
    **source_options: str,
) -> Outcome:
    """Run the IP count into a fresh topic, crash it at each fault, restart it until it is done, and audit.

    `source_options` are those of Spark's Kafka source. Raises GaveUp if the query still fails after
    one restart more than there are faults, unless it `may_give_up`: then the results published by then are audited.
    """
    topic = create_topic(bootstrap_servers, f"ip_count_sink_{uuid.uuid4().hex[:8]}", partitions=1)
    points = FaultPoints()
    sink = stage.make_sink(topic, bootstrap_servers, points)
    directories: list[str] = []

    def attempt(number: int) -> None:
        if not directories or not stage.keeps_checkpoint:
            directories.append(tempfile.mkdtemp(prefix="labs-checkpoint-"))
        starting = "earliest" if number == 1 else stage.restarts_from
        records = ip_count.read_source(
            spark, bootstrap_servers, source_topic, starting, records_per_batch, **source_options
        )
        query = ip_count.start_query(ip_count.count_ips(records), sink, directories[-1])
        try:
            query.awaitTermination()
        finally:
            query.stop()  # or after an interrupt it would continue to run

    try:
        with points.armed(*faults) as struck:
            attempts = Supervisor(attempt, restarts=len(faults) + 1, delay=0, report=lambda _: None).run()
    except GaveUp as gave_up:
        if not may_give_up:
            raise
        attempts = gave_up.attempts
    finally:
        for directory in directories:
            shutil.rmtree(directory, ignore_errors=True)
    verdict = audit(expected, read_results(bootstrap_servers, topic))
    return Outcome(stage.name, faults, tuple(struck), verdict, attempts, topic)
