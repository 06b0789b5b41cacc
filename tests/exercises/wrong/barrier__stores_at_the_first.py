"""Caught: lost. Scenario: every order.

What the other channel still brings in front of its barrier is in no count and is not read again.
"""


def on_barrier(task, channel):
    if not task.stored:
        task.snapshot()
        task.forward()
