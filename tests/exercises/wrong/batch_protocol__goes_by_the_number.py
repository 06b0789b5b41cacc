"""Caught: lost. Scenario: every interleaving.

After an older checkpoint is restored a batch of the same number has more records, and is taken for the one published.
"""

from exactly_once_kafka.protocol import MarkerMismatch


def publish(batch, has_epoch):
    yield "fence"
    marker = yield "read marker"
    last = marker.batch_id if marker else -1
    if last == batch.batch_id:
        yield "drain"
        return
    if last != batch.batch_id - 1:
        raise MarkerMismatch(f"batch {last} was the last one")
    yield "rows"
    yield "marker"
    yield "commit"
