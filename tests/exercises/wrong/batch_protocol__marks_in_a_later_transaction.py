"""Caught: doubled. Scenario: every interleaving.

A crash between the two commits: the rows are there, and no marker.
"""


def batch():
    return ["plan", "fence", "read marker", "rows", "commit", "marker", "commit", "note"]
