"""Caught: lost. Scenario: half finished.

One of two is finished, and so it takes the decision for void.
"""


def recover(prepared, decisions, finish):
    for decision in decisions:
        whole = all(transaction in prepared for transaction in decision.transactions)
        for transaction in decision.transactions:
            if transaction in prepared:
                finish(transaction, decision.commit and whole)
                prepared.remove(transaction)
    for transaction in prepared:
        finish(transaction, False)
