"""What is open now is in `prepared`; the decisions only say what is to become of it.

A transaction is committed if and only if a decision to commit names it, with all three of its values: the name
alone would confuse it with an older transaction of the same name. Everything else is aborted, whether a decision
says so or none speaks of it (presumed abort): nobody can have been told that it would be there, and the job will
read its input again. Going through `prepared`, and not through the decisions, makes it safe to be killed and
started again: what was finished is not in the list any more.
"""


def recover(prepared, decisions, finish):
    to_commit = {transaction for decision in decisions if decision.commit for transaction in decision.transactions}
    for transaction in prepared:
        finish(transaction, transaction in to_commit)
