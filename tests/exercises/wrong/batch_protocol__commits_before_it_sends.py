"""Caught: lost. Scenario: nobody disturbs.

What is sent after the last commit stays in an open transaction, and the next batch's epoch aborts that.
"""

from exactly_once_kafka.protocol import is_published


def publish(batch, has_epoch):
    yield "fence"
    if is_published((yield "read marker"), batch):
        yield "drain"
        return
    yield "marker"
    yield "commit"
    yield "rows"
