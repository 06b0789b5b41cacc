"""Caught: doubled. Scenario: every interleaving.

A driver that has read the marker and has no epoch yet is fenced by nobody: what it read may be out of date.
"""


def batch():
    return ["plan", "read marker", "fence", "rows", "marker", "commit", "note"]
