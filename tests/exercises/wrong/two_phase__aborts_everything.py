"""Caught: lost. Scenario: decided or not.

The decision is ignored.
"""


def recover(prepared, decisions, finish):
    for transaction in prepared:
        finish(transaction, False)
