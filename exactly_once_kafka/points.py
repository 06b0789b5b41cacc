"""The points at which a test can stop a batch: before and after each step of its protocol, and in its rows.

At each point the sink calls its `points=` function with the name of the point and the batch id. That function may crash
the process there, or measure the time. It does not change how the sink writes rows.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

from exactly_once_kafka.protocol import STEPS, Step

BEFORE_ROWS = "before_rows"  # the batch is planned, nothing is written
MID_ROWS = "mid_rows"  # the first rows are in Kafka (ExecutorsTransport: all rows); nothing is visible
BEFORE_COMMIT = "before_commit"  # all rows and the marker are sent, the transaction is open
AFTER_COMMIT = "after_commit"  # the rows are visible to every reader
BEFORE_CHECKPOINT = "before_checkpoint"  # the sink is done; Spark has not yet written that to its commit log

FAULT_POINTS = (BEFORE_ROWS, MID_ROWS, BEFORE_COMMIT, AFTER_COMMIT, BEFORE_CHECKPOINT)  # used in the lessons

Points = Callable[[str, int], object]


def point(when: Literal["before", "after"], step: Step) -> str:
    """Return the name of the point before or after a step."""
    return f"{when}_{step.replace(' ', '_')}"


ALL_POINTS = tuple(
    dict.fromkeys([*FAULT_POINTS, *(point(when, step) for step in STEPS for when in ("before", "after"))])
)


def pass_by(point: str, batch_id: int) -> None:
    """Do nothing at any point: the default of `points`."""
