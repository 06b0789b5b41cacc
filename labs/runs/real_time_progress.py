"""How far a query in Real-Time Mode is, for who waits for it: it never ends by itself, and must not fail unseen."""

from __future__ import annotations

import json
from pathlib import Path

from pyspark.sql.streaming import StreamingQuery

from labs.equipment.child_process import ChildProcess


def failed(query: StreamingQuery, struck: Path | None = None) -> bool:
    """Raise what a query failed of that nobody struck."""
    if not query.isActive and not (struck and struck.exists()):
        query.awaitTermination()  # raises
        raise RuntimeError("the query ended by itself, which it never should")
    return False


def over(job: ChildProcess) -> bool:
    """Raise what a job that nobody killed had to say, if it has ended."""
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
