"""Caught: torn. Scenario: every interleaving.

A commit of the batch before that comes late finds the same epoch, and ends what is open: half of this batch.
"""

from exactly_once_kafka.protocol import is_published


def publish(batch, has_epoch):
    if not has_epoch:
        yield "fence"
    if is_published((yield "read marker"), batch):
        yield "drain"
        return
    yield "rows"
    yield "marker"
    yield "commit"
