"""Caught: lost. Scenario: every order.

It sends the barrier on at the first one: what it sends afterwards, in front of the other barrier, comes too late for
the next task's part of the checkpoint.
"""


def on_barrier(task, channel):
    if len(task.arrived) == 1:
        task.forward()
    task.block(channel)
    if task.arrived == task.channels:
        task.snapshot()
        task.unblock()
