"""Caught: doubled. Scenario: the same name again.

The name alone does not say which transaction it is.
"""


def recover(prepared, decisions, finish):
    to_commit = {t.transactional_id for decision in decisions if decision.commit for t in decision.transactions}
    for transaction in prepared:
        finish(transaction, transaction.transactional_id in to_commit)
