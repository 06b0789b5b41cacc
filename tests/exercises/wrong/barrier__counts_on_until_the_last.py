"""Caught: doubled. Scenario: every order.

Waiting is right, counting meanwhile is not: what came behind the first barrier is stored, and read again.
"""


def on_barrier(task, channel):
    if task.arrived == task.channels:
        task.snapshot()
        task.forward()
