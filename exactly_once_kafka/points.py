"""The named places that a batch passes on its way through a sink.

A sink calls what it was given as `points=` with the name of the place and the batch id, as it passes it. That is
how a laboratory breaks a batch at a known place, or takes the time there. How rows are written does not depend on it.
"""

from __future__ import annotations

from collections.abc import Callable

BEFORE_WRITE = "before_write"  # the batch is planned (its offsets are in the checkpoint), nothing is written
MID_TRANSACTION = (
    "mid_transaction"  # the first rows are in Kafka, or all if executors wrote, and the transaction is open
)
BEFORE_COMMIT = "before_commit"  # all rows and the marker are sent, the transaction is open
AFTER_COMMIT = "after_commit"  # the rows are visible to every reader
BEFORE_CHECKPOINT = "before_checkpoint"  # the sink is done; Spark has not yet written that to its commit log

FAULT_POINTS = (BEFORE_WRITE, MID_TRANSACTION, BEFORE_COMMIT, AFTER_COMMIT, BEFORE_CHECKPOINT)

Points = Callable[[str, int], object]


def pass_by(point: str, batch_id: int) -> None:
    """Do nothing at any point: what a sink does unless it is given something else."""
