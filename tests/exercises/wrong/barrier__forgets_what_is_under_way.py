"""Caught: lost. Scenario: every order.

Unaligned, but it records the channel whose barrier has come: of the other one nothing is kept.
"""


def on_barrier(task, channel):
    if not task.stored:
        task.snapshot()
        task.forward()
        task.record(channel)
