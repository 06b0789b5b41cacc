"""Caught: stuck. Scenario: the barriers come together.

The checkpoint is right, and nobody takes what has waited: the job stands still behind it.
"""


def on_barrier(task, channel):
    task.block(channel)
    if task.arrived == task.channels:
        task.snapshot()
        task.forward()
