"""Caught: lost. Scenario: lose_nothing: killed after commit.

It polls the next record before it commits, and commit() means all that was polled.
"""


def lose_nothing(consumer, handle):
    message = consumer.poll()
    while message is not None:
        following = consumer.poll()
        handle(message)
        consumer.commit()
        message = following


def double_nothing(consumer, handle):
    while (message := consumer.poll()) is not None:
        consumer.commit()
        handle(message)
