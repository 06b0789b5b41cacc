"""Caught: lost. Scenario: every interleaving.

A crash between note and commit: the checkpoint says that the batch is done, and it is not there.
"""

from exactly_once_kafka.protocol import is_published


def publish(batch, has_epoch):
    yield "fence"
    if is_published((yield "read marker"), batch):
        yield "drain"
        return
    yield "rows"
    yield "marker"
    yield "note"
    yield "commit"
