"""Caught: doubled. Scenario: every interleaving.

Whoever repeats the batch does not look at the marker that is there.
"""


def publish(batch, has_epoch):
    yield "fence"
    yield "rows"
    yield "marker"
    yield "commit"
