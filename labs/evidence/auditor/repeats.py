"""Where duplicates come from: each copy of a result after the first, by what brought it about and by its batch.

Known from the headers `batch_id` and `attempt` and the order in the log. A copy within one attempt was sent twice by
a producer whose acknowledgement was lost. Any other comes from a restart, and the batch in flight at the crash is the
last one before the log goes back. Where it stops: one partition; a crash that left nothing visible is not seen.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from labs.evidence.auditor.observed import Result

LOST_ACKNOWLEDGEMENT = "lost acknowledgement"
Cause = tuple[str, int]  # what happened, and the batch that the copy is of


def count_repeats(results: Iterable[Result]) -> Counter[Cause]:
    """Count the copies by (what brought them about, their batch). Raises ValueError for a record without headers."""
    copies: Counter[Cause] = Counter()
    attempts: dict[tuple[int, str], set[str]] = {}
    crash, last_batch, last_attempt = "", -1, ""
    for result in results:
        batch, attempt = result.batch_id, result.attempt
        if batch is None or attempt is None:
            raise ValueError(f"the record at offset {result.offset} does not say of which batch and attempt it is")
        if attempt != last_attempt and batch <= last_batch:
            crash = f"crash in batch {last_batch}"
        last_batch, last_attempt = batch, attempt
        seen = attempts.setdefault((result.window_start, result.ip), set())
        if seen:
            copies[LOST_ACKNOWLEDGEMENT if attempt in seen else crash, batch] += 1
        seen.add(attempt)
    return copies
