"""Caught: doubled. Scenario: every interleaving.

A crash between commit and note: the checkpoint does not know of the commit, and nobody else has noted it.
"""


def publish(batch, has_epoch):
    yield "fence"
    yield "rows"
    yield "commit"
