"""Caught: doubled. Scenario: lose_nothing: no crash.

Without a commit, each start begins at the beginning.
"""


def lose_nothing(consumer, handle):
    while (message := consumer.poll()) is not None:
        handle(message)


def double_nothing(consumer, handle):
    while (message := consumer.poll()) is not None:
        consumer.commit()
        handle(message)
