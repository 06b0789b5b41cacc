"""The named places where the pipeline can be made to fail.

The pipeline calls `reach` as it passes each of them. Nothing happens unless somebody listens:
`labs.faults` does, and breaks the run there.
"""

from __future__ import annotations

from collections.abc import Callable

BEFORE_WRITE = "before_write"  # the batch is planned (its offsets are in the checkpoint), nothing is written
MID_TRANSACTION = "mid_transaction"  # half of the batch's rows have been sent
BEFORE_COMMIT = "before_commit"  # all rows and the marker are sent, the transaction is open
AFTER_COMMIT = "after_commit"  # the rows are visible to every reader
BEFORE_CHECKPOINT = "before_checkpoint"  # the sink is done; Spark has not yet written that to its commit log

FAULT_POINTS = (BEFORE_WRITE, MID_TRANSACTION, BEFORE_COMMIT, AFTER_COMMIT, BEFORE_CHECKPOINT)

listener: Callable[[str, int], None] | None = None


def reach(point: str, batch_id: int) -> None:
    """Say that batch `batch_id` has come to `point`."""
    if listener is not None:
        listener(point, batch_id)
