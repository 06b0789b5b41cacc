"""Caught: lost. Scenario: lose_nothing: killed after commit.

The commit comes before the work.
"""


def lose_nothing(consumer, handle):
    while (message := consumer.poll()) is not None:
        consumer.commit()
        handle(message)


double_nothing = lose_nothing
