"""Caught: doubled. Scenario: every interleaving.

A driver that has read the marker and has no epoch yet is fenced by nobody: what it read may be out of date.
"""

from exactly_once_kafka.protocol import is_published


def publish(batch, has_epoch):
    if is_published((yield "read marker"), batch):
        yield "drain"
        return
    yield "fence"
    yield "rows"
    yield "marker"
    yield "commit"
