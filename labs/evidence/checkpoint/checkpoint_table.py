"""The batches of a checkpoint as a table."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pandas as pd

from labs.evidence.checkpoint.batch import ranges

if TYPE_CHECKING:
    from labs.evidence.checkpoint.checkpoint import Checkpoint


def table_of(checkpoint: Checkpoint) -> pd.DataFrame:
    """Return one row per batch, as `Checkpoint.table` says."""
    columns = ["batch", "status", "range", "offsets", "watermark", "planned at", "state"]
    rows = [
        (
            batch.batch_id,
            batch.status,
            ranges(batch),
            batch.offsets,
            pd.to_datetime(batch.watermark_ms or None, unit="ms", utc=True),
            pd.to_datetime(batch.planned_at_ms, unit="ms", utc=True),
            " ".join(f"{len(batch.state.get(o, ()))}/{n}" for o, n in checkpoint.partitions.items()),
        )
        for batch in checkpoint.batches
    ]
    return pd.DataFrame(rows, columns=columns).set_index("batch").astype({"offsets": "Int64"})
