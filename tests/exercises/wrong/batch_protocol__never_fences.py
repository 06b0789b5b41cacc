"""Caught: wrong. Scenario: the steps.

There is no transaction without an epoch.
"""


def batch():
    return ["plan", "read marker", "rows", "marker", "commit", "note"]
