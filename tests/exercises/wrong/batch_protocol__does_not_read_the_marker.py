"""Caught: doubled. Scenario: every interleaving.

Whoever repeats the batch does not look at the marker that is there.
"""


def batch():
    return ["plan", "fence", "rows", "marker", "commit", "note"]
