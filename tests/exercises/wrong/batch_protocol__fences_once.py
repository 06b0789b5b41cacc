"""Caught: torn. Scenario: every interleaving.

A commit of the batch before that comes late finds the same epoch, and ends what is open: half of this batch.
"""


def batch():
    return ["plan", "fence once", "read marker", "rows", "marker", "commit", "note"]
