"""Caught: crashed. Scenario: the barriers come together.

The list is no part of a task: a restore does not bring it back.
"""

seen: list[str] = []


def on_barrier(task, channel):
    seen.append(channel)
    if len(seen) % 2 == 0:
        task.snapshot()
        task.forward()
