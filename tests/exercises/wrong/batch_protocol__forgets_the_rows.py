"""Caught: wrong. Scenario: the steps.

All is there but what it is about.
"""

from exactly_once_kafka.protocol import is_published


def publish(batch, has_epoch):
    yield "fence"
    if is_published((yield "read marker"), batch):
        yield "drain"
        return
    yield "marker"
    yield "commit"
