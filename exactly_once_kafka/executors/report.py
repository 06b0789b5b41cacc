"""What a task says of its work, and what the driver makes of it: only if nothing is missing may it commit."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, field

from confluent_kafka import KafkaError, KafkaException

from exactly_once_kafka.errors import Incomplete
from exactly_once_kafka.executors.lacking import LACKING

AGAIN = "a task was run again"
TIMED_OUT = "TimeoutError: "


class Unassigned(Exception):
    """A task that gives rows their Kafka partitions could not; it hands over rows, so its report is this one's text."""


@dataclass(frozen=True)
class Report:
    """`size`: of the rows, in bytes as Arrow has them; `written`: [topic, partition, records acknowledged] of each.

    `code` is Kafka's for what went wrong, or None. `stage`: Spark's number for the stage of the task.
    """

    rows: int = 0
    size: int = 0
    written: list[tuple[str, int, int]] = field(default_factory=list)
    error: str = ""
    code: int | None = None
    stage: int | None = None

    @property
    def timed_out(self) -> bool:
        """Tell whether the task gave up because Kafka was silent."""
        return self.error.startswith(TIMED_OUT)

    @property
    def lacking(self) -> str | None:
        """Return what the executor's Python lacks to write at all."""
        return self.error.removeprefix(LACKING) if self.error.startswith(LACKING) else None

    @classmethod
    def parse(cls, text: str) -> Report:
        return cls(**json.loads(text))

    @classmethod
    def in_trace(cls, trace: str) -> Report | None:
        """Return the report of a task that failed as Unassigned, if it did."""
        found = re.search(rf"{Unassigned.__name__}: (\{{.*\}})$", trace, re.MULTILINE)
        return cls.parse(found[1]) if found else None

    def __str__(self) -> str:
        return json.dumps(vars(self))


def counted(reports: Sequence[Report]) -> int:
    """Return how many rows were written and acknowledged, all of them.

    Raises what a task met, as KafkaException, ValueError or TimeoutError; and Incomplete if a task was run again, two
    wrote to one partition, or a row is missing.
    """
    for report in sorted(reports, key=lambda each: each.error == AGAIN):  # what has a cause of its own goes first
        _raise(report)
    written = [(topic, partition) for report in reports for topic, partition, _ in report.written]
    if len(set(written)) < len(written):
        raise Incomplete("two tasks wrote to one Kafka partition")
    rows = sum(report.rows for report in reports)
    acknowledged = sum(records for report in reports for *_, records in report.written)
    if rows != acknowledged:
        raise Incomplete(f"{acknowledged} of {rows} rows were acknowledged")
    return rows


def _raise(report: Report) -> None:
    if report.code is not None:
        raise KafkaException(KafkaError(report.code, report.error))
    if report.error == AGAIN:
        why = "Spark ran a task of the batch again; why it failed before is in Spark's log"
        raise Incomplete(f"{why}. Its rows might have been written twice")
    if report.error.startswith("ValueError: "):
        raise ValueError(report.error.removeprefix("ValueError: "))
    if report.error:
        raise TimeoutError(report.error.removeprefix(TIMED_OUT))
