"""Caught: lost. Scenario: nobody disturbs.

What is sent after the last commit stays in an open transaction, and the next batch's epoch aborts that.
"""


def batch():
    return ["plan", "fence", "read marker", "marker", "commit", "rows", "note"]
