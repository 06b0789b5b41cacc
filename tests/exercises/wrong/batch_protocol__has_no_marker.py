"""Caught: doubled. Scenario: every interleaving.

A crash between commit and note: the checkpoint does not know of the commit, and nobody else has noted it.
"""


def batch():
    return ["plan", "fence", "rows", "commit", "note"]
