"""Caught: hidden. Scenario: decided or not.

What no decision speaks of is left as it is.
"""


def recover(prepared, decisions, finish):
    for decision in decisions:
        for transaction in decision.transactions:
            finish(transaction, decision.commit)
