"""Caught: doubled. Scenario: decided or not.

What is prepared is committed, whether it was decided or not.
"""


def recover(prepared, decisions, finish):
    for transaction in prepared:
        finish(transaction, True)
