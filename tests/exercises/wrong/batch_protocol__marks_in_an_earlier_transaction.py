"""Caught: torn. Scenario: every interleaving.

A driver that comes between the two commits takes a batch for published of which nothing is there.
"""


def batch():
    return ["plan", "fence", "read marker", "marker", "commit", "rows", "commit", "note"]
