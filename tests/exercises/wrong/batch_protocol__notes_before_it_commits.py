"""Caught: lost. Scenario: every interleaving.

A crash between note and commit: the checkpoint says that the batch is done, and it is not there.
"""


def batch():
    return ["plan", "fence", "read marker", "rows", "marker", "note", "commit"]
