"""Caught: doubled. Scenario: double_nothing: killed after handle.

The first half is right, and the second has the same order.
"""


def lose_nothing(consumer, handle):
    while (message := consumer.poll()) is not None:
        handle(message)
        consumer.commit()


double_nothing = lose_nothing
