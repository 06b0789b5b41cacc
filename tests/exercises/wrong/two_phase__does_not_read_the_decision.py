"""Caught: doubled. Scenario: decided to abort.

A decision is taken for a decision to commit.
"""


def recover(prepared, decisions, finish):
    decided = [transaction for decision in decisions for transaction in decision.transactions]
    for transaction in prepared:
        finish(transaction, transaction in decided)
