"""Caught: lost. Scenario: every order.

Right wherever the barrier of partition 1 comes last: it takes the slow channel for the last one.
"""


def on_barrier(task, channel):
    if channel in ("partition 1", "task b"):
        task.snapshot()
        task.forward()
