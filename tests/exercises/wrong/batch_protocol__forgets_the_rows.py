"""Caught: wrong. Scenario: the steps.

All is there but what it is about.
"""


def batch():
    return ["plan", "fence", "read marker", "marker", "commit", "note"]
